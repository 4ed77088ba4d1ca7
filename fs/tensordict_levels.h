// Which directory a member of a group is in.
//
// The keys of a state dict are paths with dots, "transformer.h.0.attn.weight", and become
// directories; the members of a group are spread over levels, the first of which is the group's own
// directory. A dot separates nothing where a directory or a key could not be:
//
//   ".a", "a..b"       one side of it would be empty
//   "a.b" beside "a"   what is before it is the key of a member itself
//   "a.shape"          one side of it would be a reserved word
//   "0.1.2.[...]"      the key has more than 32 parts
//
// From there on the rest of the key stays together: "a..b" is ".b" in the directory a. So the keys
// on the way to a member, joined by dots, always give back its key; and no two members of a group
// share a directory that is a member itself. Only texts are split: not 3.5, nor (1.5, 2).

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "parser/checkpoint.h"

namespace ckptfs {

// A member of a level.
struct Item {
  std::string_view key;      // In this level. Points into the group.
  Member* member = nullptr;  // Null for a directory that only the dots of keys make.
  uint32_t level = 0;        // If so, which one that is.
};

// The levels of one group, which must outlive them.
class Levels {
 public:
  // Splits the keys of `group` as far as `room` allows, from which the number of levels that dots
  // make is taken: a short key may have many dots, but each directory costs memory.
  Levels(Group& group, size_t& room);

  // The first level is that of the group itself; each other one comes after the one that it is in.
  size_t count() const { return begins_.size() - 1; }

  // The members of a level, in the order in which the checkpoint first names them.
  std::span<const Item> operator[](size_t level) const {
    return std::span(items_).subspan(begins_[level], begins_[level + 1] - begins_[level]);
  }

 private:
  std::vector<Item> items_;  // Level by level.
  std::vector<size_t> begins_;
};

}  // namespace ckptfs
