// Options are written as for mount(8) and for other FUSE programs, and they come from three sides:
// people write `ckptfs -f -o flat m.pth /mnt`, mount(8) calls `mount.ckptfs m.pth /mnt -o rw,...`
// and passes whatever fstab says, and programs put the operands anywhere. Most of what mount(8)
// passes is about the device or about writing and means nothing here, so it is accepted and
// ignored. An unknown option is an error: a misspelt one must not go unnoticed.

#include "fs/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "fs/default_mountpoint.h"
#include "fs/option_table.h"
#include "fs/suggestion.h"
#include "parser/base/error.h"

namespace ckptfs {
namespace {

// Splits at commas; a backslash takes the next character as it is.
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

// `nearest` is what may be meant, or empty; `prefix` is how it is written.
[[noreturn]] void FailUnknown(std::string_view option, std::string_view nearest,
                              std::string_view prefix) {
  if (nearest.empty()) Fail(EINVAL, "unknown option {}", Quoted(option));
  Fail(EINVAL, "unknown option {} (did you mean '{}{}'?)", Quoted(option), prefix, nearest);
}

void SetMountOption(Options& options, std::string_view word) {
  const size_t equals = std::min(word.find('='), word.size());
  const std::string_view name = word.substr(0, equals);
  const std::string_view value = word.substr(std::min(equals + 1, word.size()));
  const auto found = std::ranges::find(MountOptions(), name, &MountOption::name);
  if (found == MountOptions().end()) {
    if (IsIgnored(name)) return;
    if (const auto why = WhyRefused(name); !why.empty()) Fail(EINVAL, "option {}: {}", name, why);
    FailUnknown(name, NearestMountOption(name), "");
  }
  if (found->value.empty() && equals != word.size())
    Fail(EINVAL, "option {}: takes no value", name);
  if (!found->value.empty() && value.empty()) {
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
      Fail(EINVAL, "options key_file and passphrase_file: a checkpoint has one of them");
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

  // One word may hold several letters, the last of which may take the rest as its value.
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
  std::span<const char* const> arguments_;  // Those that are still to be read.
  std::vector<std::string> operands_;
  Options options_;
};

}  // namespace

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

}  // namespace ckptfs
