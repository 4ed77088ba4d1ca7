#include "parser/view/subtree.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "parser/base/error.h"
#include "parser/io/folder.h"

namespace ckptfs {
namespace {

// The members of `group` whose keys begin with `key` and a dot; their keys are what follows.
Group TakeDotted(Group& group, std::string_view key) {
  Group taken;
  for (Member& member : group.members) {
    std::string& text = member.key.text;
    const bool is_below = member.key.kind == Key::Kind::kText && text.size() > key.size() + 1 &&
                          text.starts_with(key) && text[key.size()] == '.';
    if (!is_below) continue;
    text.erase(0, key.size() + 1);
    taken.members.push_back(std::move(member));
  }
  return taken;
}

[[noreturn]] void FailFor(const Group& group, std::string_view path) {
  std::set<std::string> keys;
  for (const Member& member : group.members) {
    const std::string& text = member.key.text;
    const bool is_group = std::holds_alternative<std::unique_ptr<Group>>(member.content);
    if (is_group || text.find('.') != std::string::npos) {
      keys.insert(is_group ? text : text.substr(0, text.find('.')));
    }
  }
  const std::vector<std::string> names(keys.begin(), keys.end());
  Fail(ENOENT, "subtree {}: no dict of that key{}{}", Quoted(path), names.empty() ? "" : ", but ",
       Listed(names));
}

// Takes the group of `key` out of `group`.
Group TakeGroup(Group& group, std::string_view key, std::string_view path) {
  for (Member& member : group.members) {
    auto* const child = std::get_if<std::unique_ptr<Group>>(&member.content);
    if (child != nullptr && member.key.text == key) return std::move(**child);
  }
  Group dotted = TakeDotted(group, key);
  if (dotted.members.empty()) FailFor(group, path);
  return dotted;
}

}  // namespace

void TakeSubtree(Checkpoint& checkpoint, std::string_view path) {
  for (std::string_view rest = path; !rest.empty();) {
    const size_t slash = std::min(rest.find('/'), rest.size());
    const std::string_view key = rest.substr(0, slash);
    rest.remove_prefix(std::min(slash + 1, rest.size()));
    if (key.empty()) continue;
    Group group = TakeGroup(checkpoint.root, key, path);
    checkpoint.root = std::move(group);
  }
}

}  // namespace ckptfs
