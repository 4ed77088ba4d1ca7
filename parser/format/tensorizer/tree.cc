#include "parser/format/tensorizer/tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "parser/base/error.h"

namespace ckptfs::tensorizer {
namespace {

std::string Shown(std::span<const Key> path) {
  std::string shown;
  for (const Key& key : path) shown.append(shown.empty() ? "" : ".").append(key.text);
  return Quoted(shown);
}

bool IsGroup(const Member& member) {
  return std::holds_alternative<std::unique_ptr<Group>>(member.content);
}

// As the numbers that they are; digits have no leading zeros.
bool IsBefore(const Member& a, const Member& b) {
  const std::string& x = a.key.text;
  const std::string& y = b.key.text;
  return x.size() != y.size() ? x.size() < y.size() : x < y;
}

// The depth of the recursion is that of names.
void PutInOrder(Group& group) {
  std::vector<Member>& members = group.members;
  for (const Member& member : members) {
    if (IsGroup(member)) PutInOrder(*std::get<std::unique_ptr<Group>>(member.content));
  }
  // No number occurs twice, so these are all from 0 on if the largest is one less than their count.
  if (members.empty() || members[0].key.kind != Key::Kind::kNumber) return;
  const auto largest = std::ranges::max_element(members, IsBefore);
  if (largest->key.text != std::to_string(members.size() - 1)) return;
  group.python_type = "list";
  std::ranges::sort(members, IsBefore);
}

}  // namespace

Place TreeBuilder::AddMember(Group& group, Key key) {
  // A member is there once more in the tree of files, and a byte of its key may need several as an
  // escape, in the name of a file and in meta.json.
  constexpr uint64_t kCostOfByte = 8;
  budget_.Charge(2 * sizeof(Member) + kCostOfByte * key.text.size());
  group.members.push_back({std::move(key), Value{}});
  const Place place = {&group, group.members.size() - 1};
  places_.insert(place);
  return place;
}

Place TreeBuilder::Add(std::vector<Key> path) {
  Group* group = &root_;
  for (size_t i = 0;; ++i) {
    const std::span<const Key> so_far(path.data(), i + 1);
    Key& key = path[i];
    if (!group->members.empty() && group->members[0].key.kind != key.kind) {
      Fail(EBADMSG, "tensor {}: lies where some keys are texts and others numbers", Shown(path));
    }
    const auto found = places_.find(Sought{group, key.text});
    const bool is_last = i + 1 == path.size();
    if (found == places_.end()) {
      const Place place = AddMember(*group, is_last ? std::move(key) : key);
      if (is_last) return place;
      budget_.Charge(sizeof(Group));
      auto child = std::make_unique<Group>();
      group = child.get();
      place.member().content = std::move(child);
      continue;
    }
    const Member& member = found->member();
    if (is_last && !IsGroup(member)) Fail(EBADMSG, "tensor {}: occurs twice", Shown(path));
    if (is_last || !IsGroup(member)) {
      Fail(EBADMSG, "tensor {}: is a tensor, but others lie in it", Shown(so_far));
    }
    group = std::get<std::unique_ptr<Group>>(member.content).get();
  }
}

void TreeBuilder::Finish() { PutInOrder(root_); }

}  // namespace ckptfs::tensorizer
