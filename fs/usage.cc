// The text of --help.

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "fs/option_table.h"
#include "fs/options.h"

namespace ckptfs {
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
    const std::string_view equals = option.value.empty() ? "" : "=";
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
