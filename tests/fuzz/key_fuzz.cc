#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "fs/tensordict_names.h"
#include "fs/tree.h"
#include "parser/base/text.h"
#include "tests/fuzz/require.h"

namespace ckptfs {
namespace {

int Digit(char c) { return c >= 'A' ? c - 'A' + 10 : c - '0'; }

// Decodes a name as tensordict does.
std::string Decode(std::string_view name) {
  if (name == "%") return "";
  std::string key;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '%') {
      Require(i + 2 < name.size());
      key += static_cast<char>(16 * Digit(name[i + 1]) + Digit(name[i + 2]));
      i += 2;
    } else {
      key += name[i];
    }
  }
  return key;
}

bool IsFileNameOnDisk(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.size() <= Tree::kMaxFuseName &&
         name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

// Splits the input at line feeds into keys. The first character of a line is the kind: a directory,
// a table, both, or a tensor.
std::vector<UnnamedMember> MembersIn(std::string_view input) {
  std::vector<UnnamedMember> members;
  while (!input.empty()) {
    std::string_view line = input.substr(0, input.find('\n'));
    input.remove_prefix(std::min(line.size() + 1, input.size()));
    const char kind = line.empty() ? '\0' : line.front();
    const bool is_told = kind == '/' || kind == ':' || kind == '*';
    if (is_told) line.remove_prefix(1);
    members.push_back({.key = line,
                       .is_directory = kind == '/' || kind == '*',
                       .suffix = kind == '/' ? std::string_view()
                                 : is_told   ? kTableSuffix
                                             : kTensorSuffix});
  }
  return members;
}

// The oracle: any key can be encoded and decoded, and any list of keys becomes a directory with
// legal and unique names and keys.
void Check(std::string_view input) {
  Require(Decode(EncodeKey(input)) == input);

  const auto members = MembersIn(input);
  std::vector<std::string> keys;
  keys.reserve(members.size());
  for (const UnnamedMember& member : members) keys.emplace_back(member.key);
  for (const Renamed& renamed : Rename(members)) keys[renamed.index] = renamed.key;

  std::unordered_set<std::string> names = {std::string(kMetaName)};
  std::unordered_set<std::string> different;
  for (size_t i = 0; i < keys.size(); ++i) {
    Require(utf8::IsValid(keys[i]) && !IsReserved(keys[i]));
    Require(different.insert(keys[i]).second);
    const auto require_name = [&names](const std::string& name) {
      Require(IsFileNameOnDisk(name));
      Require(names.insert(name).second);
    };
    if (members[i].is_directory) require_name(DirectoryName(keys[i]));
    if (!members[i].suffix.empty()) require_name(ListedName(keys[i]).append(members[i].suffix));
  }
}

}  // namespace
}  // namespace ckptfs

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ckptfs::Check({reinterpret_cast<const char*>(data), size});
  return 0;
}
