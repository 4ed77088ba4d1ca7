// All options of the command line, in one place. Parsing, --help and "did you mean" read these
// tables. tests/documentation_test.py compares them with the manual pages, docs/usage.md and the
// completions.

#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "fs/options.h"

namespace ckptfs {

// Returns the number of letters of `a` to insert, remove, replace or exchange with the next one to
// get `b`; more than 64 for words longer than 64 bytes.
size_t EditDistance(std::string_view a, std::string_view b);

// Returns the word of `known` that is nearest to `word`, the first of several; empty if no word is
// near. Upper case and dashes count as lower case and underscores.
std::string_view NearestWord(std::string_view word, std::span<const std::string_view> known);

// A letter after a dash, or a word after two.
struct Switch {
  char letter;
  std::string_view long_name;  // May be empty.
  std::string_view help;       // Empty: accepted and ignored, and not in the help.
  bool Options::*member;       // Null: ignored.
};

// An argument of -o: "name", or "name=value".
struct MountOption {
  std::string_view name;
  std::string_view value;  // As the help shows it: "FILE"; empty: the option takes no value; in
                           // brackets, with "=": it may be left out.
  std::string_view group;  // Its heading in the help; options of a group are adjacent.
  std::string_view help;

  // Sets it in `options`. `value` is empty if the option has none. Throws Error(EINVAL).
  void (*set)(Options& options, std::string_view option, std::string_view value);
};

struct ExitStatus {
  ExitCode code;
  std::string_view help;
};

// Those of the program, and those of mount.ckptfs, for which -f has another meaning: see mount(8).
std::span<const Switch> ProgramSwitches();
std::span<const Switch> HelperSwitches();

// The letters of mount.ckptfs that take a value, which is ignored: a namespace and the type.
constexpr std::string_view kHelperLettersWithValue = "Nt";

std::span<const MountOption> MountOptions();

// Returns the option of that name; null if it is unknown.
const MountOption* FindMountOption(std::string_view name);

// Whether an option is about opening and reading a checkpoint, and not about mounting it.
bool IsForSources(const MountOption& option);

// Options of mount(8), fstab(5) and other FUSE programs that change nothing here, with any value.
bool IsIgnored(std::string_view name);

// Returns why an option of other FUSE programs is rejected and not ignored; empty if `name` is not
// such an option.
std::string_view WhyRefused(std::string_view name);

// Returns the mount option that `name` may be a misspelling of; empty if no name is near.
std::string_view NearestMountOption(std::string_view name);

std::span<const ExitStatus> ExitStatuses();

}  // namespace ckptfs
