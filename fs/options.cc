// Options are written as for mount(8) and for other FUSE programs. They come from three sources:
// users write `ckptfs -f -o flat m.pth /mnt`, mount(8) calls `mount.ckptfs m.pth /mnt -o rw,...`
// and passes the options of fstab, and programs put the operands anywhere. Most options that
// mount(8) passes are about devices or writing, and are accepted and ignored. An unknown option is
// an error, because it may be misspelt.

#include "fs/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "fs/option_table.h"
#include "parser/base/encoding.h"
#include "parser/base/error.h"
#include "parser/base/part_name.h"
#include "parser/io/folder.h"
#include "parser/io/location.h"

namespace ckptfs {
namespace {

// Splits at commas; a backslash escapes the next character.
std::vector<std::string> SplitList(std::string_view list) {
  std::vector<std::string> words(1);
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i] == ',') {
      words.emplace_back();
    } else {
      if (list[i] == '\\' && i + 1 < list.size()) ++i;
      words.back() += list[i];
    }
  }
  return words;
}

// `nearest` is the option that may be intended, or empty; `prefix` precedes it.
[[noreturn]] void FailUnknown(std::string_view option, std::string_view nearest,
                              std::string_view prefix) {
  if (nearest.empty()) Fail(EINVAL, "unknown option {}", Quoted(option));
  Fail(EINVAL, "unknown option {} (did you mean '{}{}'?)", Quoted(option), prefix, nearest);
}

void SetMountOption(Options& options, std::string_view word) {
  const size_t equals = std::min(word.find('='), word.size());
  const std::string_view name = word.substr(0, equals);
  const std::string_view value = word.substr(std::min(equals + 1, word.size()));
  const MountOption* const found = FindMountOption(name);
  if (found == nullptr) {
    if (IsIgnored(name)) return;
    if (const auto why = WhyRefused(name); !why.empty()) Fail(EINVAL, "option {}: {}", name, why);
    FailUnknown(name, NearestMountOption(name), "");
  }
  if (found->value.empty() && equals != word.size())
    Fail(EINVAL, "option {}: takes no value", name);
  const bool needs_value = !found->value.empty() && !found->value.starts_with('[');
  if (needs_value && value.empty()) {
    Fail(EINVAL, "option {}: needs a value: {}={}", name, name, found->value);
  }
  found->set(options, name, value);
}

void SetMountOptions(Options& options, std::string_view list) {
  for (const std::string& word : SplitList(list)) {
    if (!word.empty()) SetMountOption(options, word);
  }
}

class Parser {
 public:
  Parser(bool is_helper, std::span<const char* const> arguments)
      : is_helper_(is_helper),
        switches_(is_helper ? HelperSwitches() : ProgramSwitches()),
        arguments_(arguments) {}

  Options Parse() {
    bool options_may_follow = true;
    while (!arguments_.empty()) {
      const std::string_view argument = TakeArgument();
      if (!options_may_follow || argument == "-" || !argument.starts_with('-')) {
        operands_.emplace_back(argument);
      } else if (argument == "--") {
        options_may_follow = false;
      } else if (argument.starts_with("--")) {
        SetLong(argument.substr(2));
      } else {
        SetLetters(argument.substr(1));
      }
    }
    if (!options_.key_file.empty() && !options_.passphrase_file.empty()) {
      Fail(EINVAL, "options key_file and passphrase_file are mutually exclusive");
    }
    if (!options_.help && !options_.version) TakeOperands();
    if (options_.allow_other) options_.sources.links = LinkPolicy::kInside;
    if (options_.follow_links) options_.sources.links = LinkPolicy::kAll;
    return std::move(options_);
  }

 private:
  std::string_view TakeArgument() {
    const std::string_view argument = arguments_.front();
    arguments_ = arguments_.subspan(1);
    return argument;
  }

  void SetLong(std::string_view name) {
    const auto found = std::ranges::find(switches_, name, &Switch::long_name);
    if (found != switches_.end()) {
      options_.*found->member = true;
      return;
    }
    const std::string option = fmt::format("--{}", name);
    std::vector<std::string_view> known;
    for (const Switch& each : switches_) known.push_back(each.long_name);
    const std::string_view nearest = NearestWord(name, known);
    if (!nearest.empty()) FailUnknown(option, nearest, "--");
    FailUnknown(option, NearestMountOption(name.substr(0, name.find('='))), "-o ");
  }

  // One word may contain several letters; the rest may be the value of the last one.
  void SetLetters(std::string_view letters) {
    const std::string_view word = letters;
    while (!letters.empty()) {
      const char letter = letters.front();
      letters.remove_prefix(1);
      if (letter == 'o') return SetMountOptions(options_, ValueOf(letter, letters));
      if (is_helper_ && kHelperLettersWithValue.find(letter) != std::string_view::npos) {
        ValueOf(letter, letters);
        return;
      }
      const auto found = std::ranges::find(switches_, letter, &Switch::letter);
      if (found == switches_.end()) {
        FailUnknown(fmt::format("-{}", letter),
                    word.size() > 1 ? NearestMountOption(word) : std::string_view(), "-o ");
      }
      if (found->member != nullptr) options_.*found->member = true;
    }
  }

  std::string_view ValueOf(char letter, std::string_view rest) {
    if (!rest.empty()) return rest;
    if (arguments_.empty()) Fail(EINVAL, "option -{}: needs a value", letter);
    return TakeArgument();
  }

  void TakeOperands() {
    const size_t count = operands_.size();
    if (options_.unmount && count != 1) {
      Fail(EINVAL, "-u needs a mount point, got {} operands", count);
    }
    if (!options_.unmount && (count == 0 || count > 2 || (is_helper_ && count == 1))) {
      Fail(EINVAL, "needs a checkpoint and a mount point, got {} operands", count);
    }
    if (!options_.unmount && operands_[0].empty()) {
      Fail(EINVAL, "the name of the checkpoint is empty");
    }
    if (operands_.back().empty()) Fail(EINVAL, "the name of the mount point is empty");
    options_.mountpoint = count == 1 && !options_.unmount ? DefaultMountpoint(operands_[0])
                                                          : std::move(operands_.back());
    if (!options_.unmount) options_.source = std::move(operands_[0]);
  }

  const bool is_helper_;
  const std::span<const Switch> switches_;
  std::span<const char* const> arguments_;  // The remaining ones.
  std::vector<std::string> operands_;
  Options options_;
};

}  // namespace

bool IsOptionList(std::string_view text) {
  const std::string_view name = text.substr(0, text.find(','));
  return text.find('=') != std::string_view::npos || FindMountOption(name) != nullptr;
}

void SetSourceOptions(Options& options, std::string_view list) {
  for (const std::string& word : SplitList(list)) {
    const std::string_view name = std::string_view(word).substr(0, word.find('='));
    const MountOption* const found = FindMountOption(name);
    if (found != nullptr && !IsForSources(*found)) Fail(EINVAL, "option {}: is for a mount", name);
    if (!word.empty()) SetMountOption(options, word);
  }
}

Options ParseOptions(const std::string& program, std::span<const char* const> arguments) try {
  const size_t slash = program.rfind('/');
  const bool is_helper =
      program.compare(slash == std::string::npos ? 0 : slash + 1, 6, "mount.") == 0;
  return Parser(is_helper, arguments).Parse();
} catch (const Error& e) {
  throw Error(e.code(), fmt::format("{}; see ckptfs -h", e.what()));
}

std::string EscapedOption(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == ',' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

namespace {

constexpr std::string_view kSuffixes[] = {
    ".bin",  ".bz2", ".ckpt",    ".distcp", ".gguf", ".gz", ".index.json", ".json", ".lz4",
    ".nemo", ".npy", ".npz",     ".pickle", ".pkl",  ".pt", ".pt2",        ".pth",  ".safetensors",
    ".tar",  ".tdz", ".tensors", ".tgz",    ".th",   ".xz", ".zanj",       ".zip",  ".zst",
};

// Removes the last name from `path` and returns it.
std::string_view TakeName(std::string_view& path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  const std::string_view name = slash == std::string_view::npos ? path : path.substr(slash + 1);
  path.remove_suffix(name.size());
  return name;
}

std::string_view WithoutSuffixes(std::string_view name) {
  while (true) {
    const auto* const suffix = std::ranges::find_if(
        kSuffixes, [&](std::string_view each) { return name.ends_with(each); });
    if (suffix == std::end(kSuffixes)) return name;
    name.remove_suffix(suffix->size());
  }
}

std::string NameIn(std::string_view path) {
  const std::string_view last = TakeName(path);
  const std::string_view name = WithoutSuffixes(last);
  // Names of files that a format has in each directory, such as ".metadata".
  if (name.empty() || (name.starts_with('.') && name != "." && name != "..")) {
    return std::string(WithoutSuffixes(TakeName(path)));
  }
  const auto part = ParsePartName(last);  // Stands for the whole model.
  return part ? part->prefix : std::string(name);
}

// The path in `source`: without host or bucket, and without user.
std::string PathIn(const std::string& source) {
  const Location shown = ParseLocation(Redacted(source));
  const bool is_encoded =
      shown.scheme == "file" || shown.scheme == "http" || shown.scheme == "https";
  return is_encoded ? PercentDecode(shown.path) : shown.path;
}

}  // namespace

std::string DefaultMountpoint(const std::string& source) {
  const std::string path = PathIn(source);
  std::string name = NameIn(path);
  if (!IsPlainName(name)) {
    Fail(EINVAL, "{}: no name for a default mount point: name one", Redacted(source));
  }
  return name;
}

namespace {

// Returns the type of the file at `path`; not found if stat fails.
std::filesystem::file_type TypeAt(const std::string& path) {
  std::error_code error;
  return std::filesystem::status(path, error).type();
}

bool IsEmpty(const std::string& directory, bool expected) {
  std::error_code error;
  return std::filesystem::is_empty(directory, error) == expected && !error;
}

bool AreSwapped(const std::string& source, const std::string& mountpoint) {
  using Type = std::filesystem::file_type;
  if (!SchemeNameOf(source).empty()) return false;
  const Type first = TypeAt(source);
  const Type last = TypeAt(mountpoint);
  if (!SchemeNameOf(mountpoint).empty() || last == Type::regular) {
    return first == Type::directory || first == Type::not_found;
  }
  // An empty directory is not a checkpoint, and one with files is not a mount point.
  return first == Type::directory && last == Type::directory && IsEmpty(source, true) &&
         IsEmpty(mountpoint, false);
}

}  // namespace

void CheckOrder(const std::string& source, const std::string& mountpoint) {
  if (AreSwapped(source, mountpoint)) {
    Fail(EINVAL,
         "arguments are swapped: the checkpoint is the first one "
         "(usage: ckptfs [OPTION]... CHECKPOINT MOUNTPOINT)");
  }
}

namespace {

void Add(std::string& text, std::string_view name, std::string_view help) {
  text += fmt::format("  {:<24} {}\n", name, help);
}

}  // namespace

std::string Usage() {
  std::string text =
      "usage: ckptfs [-fd] [-o OPTION,...] CHECKPOINT [MOUNTPOINT]\n"
      "       ckptfs -u MOUNTPOINT\n"
      "Mounts a model checkpoint as a directory of raw tensor files.\n"
      "Without MOUNTPOINT, that is the checkpoint's name without its suffix, here.\n\n";
  for (const Switch& option : ProgramSwitches()) {
    if (option.help.empty()) continue;
    const bool is_long = !option.long_name.empty();
    Add(text, fmt::format("-{}{}{}", option.letter, is_long ? ", --" : "", option.long_name),
        option.help);
  }
  std::string_view group;
  for (const MountOption& option : MountOptions()) {
    if (option.group != group) text += fmt::format("\n{}:\n", option.group);
    group = option.group;
    const bool has_equals = option.value.empty() || option.value.starts_with('[');
    const std::string_view equals = has_equals ? "" : "=";
    Add(text, fmt::format("-o {}{}{}", option.name, equals, option.value), option.help);
  }
  text +=
      "\nOptions of mount(8) and FUSE programs that change nothing here are ignored.\n"
      "\nexit status:\n";
  for (const ExitStatus& status : ExitStatuses()) {
    Add(text, fmt::to_string(static_cast<int>(status.code)), status.help);
  }
  return text;
}

}  // namespace ckptfs
