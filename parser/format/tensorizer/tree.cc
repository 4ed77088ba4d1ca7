#include "parser/format/tensorizer/tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/base/text.h"
#include "parser/codec/json_reader.h"
#include "parser/io/simple_sources.h"

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

// The depth of the recursion is that of names.
void PutInOrder(Group& group) {
  std::vector<Member>& members = group.members;
  for (const Member& member : members) {
    if (IsGroup(member)) PutInOrder(*std::get<std::unique_ptr<Group>>(member.content));
  }
  // No number occurs twice, so these are all from 0 on if the largest is one less than their count.
  if (members.empty() || members[0].key.kind != Key::Kind::kNumber) return;
  const auto largest = std::ranges::max_element(members, HasSmallerNumber);
  if (largest->key.text != std::to_string(members.size() - 1)) return;
  group.python_type = "list";
  std::ranges::sort(members, HasSmallerNumber);
}

}  // namespace

TreePosition TreeBuilder::AddMember(Group& group, Key key) {
  // A member is there once more in the tree of files, and a byte of its key may need several as an
  // escape, in the name of a file and in meta.json.
  constexpr uint64_t kCostOfByte = 8;
  budget_.Charge(2 * sizeof(Member) + kCostOfByte * key.text.size());
  group.members.push_back({std::move(key), Value{}});
  const TreePosition place = {&group, group.members.size() - 1};
  places_.insert(place);
  return place;
}

TreePosition TreeBuilder::Add(std::vector<Key> path) {
  Group* group = &root_;
  for (size_t i = 0;; ++i) {
    const std::span<const Key> so_far(path.data(), i + 1);
    Key& key = path[i];
    if (!group->members.empty() && group->members[0].key.kind != key.kind) {
      Fail(EBADMSG, "tensor {}: is in a group with both text and number keys", Shown(path));
    }
    const auto found = places_.find(Sought{group, key.text});
    const bool is_last = i + 1 == path.size();
    if (found == places_.end()) {
      const TreePosition place = AddMember(*group, is_last ? std::move(key) : key);
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
      Fail(EBADMSG, "tensor {}: is a tensor, but other tensors are below it", Shown(so_far));
    }
    group = std::get<std::unique_ptr<Group>>(member.content).get();
  }
}

void TreeBuilder::Finish() { PutInOrder(root_); }

// The JSON is that of Python, whose texts may have lone surrogates.

namespace {

constexpr char kArrayMark = '\x1E';

// The keys in the list of a name.
class NameVisitor final : public json::Visitor {
 public:
  void Begin(bool is_object) override {
    if (is_object || std::exchange(is_in_list_, true)) Refuse();
  }

  void Text(std::string& text) override { Add(std::move(text), ckptfs::Key::Kind::kText); }

  void Whole(uint64_t number) override {
    if (number > uint64_t{std::numeric_limits<int64_t>::max()}) Refuse();
    Add(std::to_string(number), ckptfs::Key::Kind::kNumber);
  }

  void Other(std::string_view /*json*/) override { Refuse(); }

  std::vector<ckptfs::Key> Take() {
    if (keys_.empty()) Refuse();
    return std::move(keys_);
  }

 private:
  [[noreturn]] static void Refuse() {
    Fail(EBADMSG, "it is not a list of texts and whole numbers");
  }

  void Add(std::string text, ckptfs::Key::Kind kind) {
    if (!is_in_list_) Refuse();
    if (keys_.size() == kMaxDepth) Fail(EBADMSG, "it has more than {} keys", kMaxDepth);
    keys_.push_back({std::move(text), kind});
  }

  bool is_in_list_ = false;
  std::vector<ckptfs::Key> keys_;
};

// tensorizer takes no ends of lines, not even as white space, and nothing around the list.
bool IsOneLine(std::string_view list) {
  return list.starts_with('[') && list.ends_with(']') &&
         list.find_first_of("\r\n") == std::string_view::npos;
}

}  // namespace

std::vector<Key> ReadName(std::string_view stored) try {
  if (!stored.starts_with(kArrayMark)) {
    if (!utf8::IsValid(stored)) Fail(EBADMSG, "it is not UTF-8");
    return {Key{std::string(stored)}};
  }
  const std::string_view list = stored.substr(1);
  if (!IsOneLine(list)) Fail(EBADMSG, "it is not a list in one line");
  Budget budget = Budget::ForFile(list.size());
  NameVisitor keys;
  json::Read(MemorySource(std::string(list)), 0, list.size(), budget, keys, json::Dialect::kPython);
  return keys.Take();
} catch (const Error& e) {
  throw WithContext("name " + Quoted(stored), e);
}

std::string ShownName(std::string_view stored) {
  std::string shown;
  for (const Key& key : ReadName(stored)) {
    if (!shown.empty()) shown += '.';
    shown += key.text;
  }
  return shown;
}

}  // namespace ckptfs::tensorizer
