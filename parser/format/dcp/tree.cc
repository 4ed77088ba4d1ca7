#include "parser/format/dcp/tree.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "parser/format/torch/value.h"

namespace ckptfs::dcp {
namespace {

using pickle::Kind;

bool IsPath(std::span<const pickle::Value> path) {
  return !path.empty() && path.size() <= torch::kMaxDepth &&
         std::ranges::all_of(path, [](const pickle::Value& key) {
           return key.kind == Kind::kText || (key.kind == Kind::kInt && key.integer >= 0);
         });
}

bool IsNumber(const Member& member) { return member.key.kind == Key::Kind::kNumber; }

// As the numbers that they are; digits have no leading zeros.
bool IsBefore(const Member& a, const Member& b) {
  const std::string& x = a.key.text;
  const std::string& y = b.key.text;
  return x.size() != y.size() ? x.size() < y.size() : x < y;
}

}  // namespace

Group& TreeBuilder::GroupIn(Group& parent, const pickle::Value& key) {
  const bool is_number = key.kind == Kind::kInt;
  const uint64_t what =
      is_number ? static_cast<uint64_t>(key.integer) : names_.NumberOf(key.text());
  const auto [found, is_new] = groups_.try_emplace({&parent, is_number, what});
  if (is_new) {
    auto group = std::make_unique<Group>();
    found->second = group.get();
    Key name = torch::KeyOf(key);
    budget_.Charge(2 * sizeof(Member) + sizeof(Group) + name.text.size());
    parent.members.push_back({std::move(name), std::move(group)});
  }
  return *found->second;
}

void TreeBuilder::Add(std::span<const pickle::Value> path, std::string_view name, Content content) {
  Group* group = &root_;
  Key key{.text = std::string(name)};
  if (IsPath(path)) {
    for (const pickle::Value& step : path.first(path.size() - 1)) {
      budget_.Charge(sizeof(step));  // Many may share a long path.
      group = &GroupIn(*group, step);
    }
    key = torch::KeyOf(path.back());
  }
  budget_.Charge(2 * sizeof(Member) + key.text.size());  // Once more for its files in the tree.
  group->members.push_back({std::move(key), std::move(content)});
}

void TreeBuilder::Finish() {
  for (const auto& [place, group] : groups_) {
    if (!std::ranges::all_of(group->members, IsNumber)) continue;
    group->python_type = "list";
    std::ranges::stable_sort(group->members, IsBefore);
  }
}

}  // namespace ckptfs::dcp
