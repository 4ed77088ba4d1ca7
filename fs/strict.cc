#include "fs/strict.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "parser/base/error.h"
#include "parser/base/overloaded.h"

namespace ckptfs {
namespace {

struct Count {
  size_t tensors = 0;
  size_t broken = 0;
  std::string path;  // Of the first broken one.
  std::string error;
  std::string_view kind;  // What it is.
};

// Why a member is not all that was saved; empty if it is. A tensor of unknown size, and an object
// that is lost, are values with an error; a tensor in pieces may have lost some of them.
std::string ErrorOf(const Member& member) {
  const auto annotation_of = [](const std::vector<Annotation>& annotations, std::string_view name) {
    const auto found = std::ranges::find(annotations, name, &Annotation::first);
    return found == annotations.end() ? std::string() : found->second;
  };
  return std::visit(
      Overloaded{[](const std::unique_ptr<Group>& /*group*/) { return std::string(); },
                 [&](const Tensor& tensor) {
                   if (!tensor.error.empty()) return tensor.error;
                   return std::string(tensor.is_complete ? "" : "some of its pieces are lost");
                 },
                 [&](const Value& value) { return annotation_of(value.annotations, "error"); },
                 [](const Table& table) { return table.error; }},
      member.content);
}

// The depth of the recursion is that of the tree, which its format has bounded.
void Add(const Group& group, Count& count) {
  for (const Member& member : group.members) {
    if (const auto* child = std::get_if<std::unique_ptr<Group>>(&member.content)) {
      const bool was_sound = count.broken == 0;
      Add(**child, count);
      if (was_sound && count.broken > 0) count.path = member.key.text + "." + count.path;
      continue;
    }
    if (std::holds_alternative<Tensor>(member.content)) ++count.tensors;
    const std::string error = ErrorOf(member);
    if (error.empty() || ++count.broken > 1) continue;
    count.path = member.key.text;
    count.error = error;
    count.kind = std::holds_alternative<Value>(member.content)   ? "value"
                 : std::holds_alternative<Table>(member.content) ? "table"
                                                                 : "tensor";
  }
}

}  // namespace

void CheckWhole(const Checkpoint& checkpoint, std::string_view name) {
  Count count;
  Add(checkpoint.root, count);
  if (count.broken == 0) return;
  Fail(EBADMSG, "{}: {} {}: {}: {} of {} tensors are unreadable (strict)", name, count.kind,
       Quoted(count.path), count.error, count.broken, std::max(count.tensors, count.broken));
}

void Readers::Add(mode_t permissions, gid_t group) {
  const std::lock_guard lock(mutex_);
  has_groups_ = has_groups_ || (group_ && *group_ != group);
  group_ = group;
  permissions_ &= permissions;
}

mode_t Readers::MaskFor(gid_t group) const {
  const std::lock_guard lock(mutex_);
  const bool others = (permissions_ & S_IROTH) != 0;
  // To the members of another group the files are what they are to others.
  const bool is_theirs = !group_ || (!has_groups_ && *group_ == group);
  const bool members = (permissions_ & S_IRGRP) != 0 && (is_theirs || others);
  return (members ? 0U : S_IRWXG) | (others ? 0U : S_IRWXO);
}

}  // namespace ckptfs
