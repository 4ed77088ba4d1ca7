#include "parser/format/zanj/leaves.h"

#include <algorithm>

#include "parser/format/zanj/tag.h"

namespace ckptfs::zanj {

Leaves::Leaves(json::Node root, Budget& budget) : begins_(&budget) { Collect(root); }

bool Leaves::AreIn(json::Node node) const {
  const auto first = std::ranges::lower_bound(begins_, node.begin());
  return first != begins_.end() && *first < node.end();
}

// What an array or a table has in itself is a part of it: the copy of its first row, for one.
void Leaves::Collect(json::Node node) {
  if (node.is_list()) {
    json::Items items(node);
    while (const auto item = items.Next()) Collect(*item);
  } else if (node.is_object()) {
    const Tag tag = TagOf(node);
    if (tag.is_array() || tag.is_table()) {
      begins_.push_back(node.begin());
    } else if (tag.kind != Tag::Kind::kText) {
      json::Members members(node);
      while (const auto member = members.Next()) Collect(member->value);
    }
  }
}

}  // namespace ckptfs::zanj
