// From the flat names of a distributed checkpoint back to the dicts and lists that they came from.

#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

#include "parser/base/budget.h"
#include "parser/checkpoint.h"
#include "parser/codec/pickle.h"
#include "parser/format/dcp/files.h"
#include "parser/format/dcp/names.h"

namespace ckptfs::dcp {

// Adds members to a root. Belongs to one thread.
class TreeBuilder {
 public:
  // All must outlive it. What the tree needs is charged to `budget`.
  TreeBuilder(Group& root, Names& names, Budget& budget)
      : root_(root), names_(names), budget_(budget), groups_(&budget) {}

  // Adds `content` at `path`: texts are keys of dicts, numbers indexes of lists. If the path is
  // empty or has other keys, as the member `name` of the root. Throws Error(EFBIG).
  void Add(std::span<const pickle::Value> path, std::string_view name, Content content);

  // Tells the lists from the dicts, once all is added.
  void Finish();

 private:
  // What a group is called: in which group, whether by a number, and by which one or what text.
  using Place = std::tuple<const Group*, bool, uint64_t>;

  Group& GroupIn(Group& parent, const pickle::Value& key);

  Group& root_;
  Names& names_;
  Budget& budget_;
  std::pmr::map<Place, Group*> groups_;  // All but the root.
};

}  // namespace ckptfs::dcp
