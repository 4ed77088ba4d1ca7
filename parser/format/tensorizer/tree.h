// Where tensors lie in the tree that their names make.

#pragma once

#include <cstddef>
#include <memory>
#include <memory_resource>
#include <set>
#include <string_view>
#include <vector>

#include "parser/base/budget.h"
#include "parser/checkpoint.h"

namespace ckptfs::tensorizer {

// The member of a group. Members move when others come, so it is told by its number.
struct Place {
  Group* group = nullptr;
  size_t number = 0;

  Member& member() const { return group->members[number]; }
};

// Makes the groups that names ask for, and refuses names that do not go together, as tensorizer
// does: twice the same, one that leads through a tensor, or texts and numbers side by side.
// Belongs to one thread.
class TreeBuilder {
 public:
  // Fills `root`, which is empty and must stay where it is. Groups and keys are charged to
  // `budget`.
  TreeBuilder(Group& root, Budget& budget) : root_(root), budget_(budget), places_(&budget) {}

  // Makes a place for what is at `path`, which is not empty: a member whose content is to be set.
  // Places hold until Finish. Throws Error.
  Place Add(std::vector<Key> path);

  // Puts groups whose keys are the numbers from 0 on in their order: they were lists.
  void Finish();

 private:
  struct Sought {
    const Group* group;
    std::string_view key;
  };

  struct Less {
    using is_transparent = void;

    static Sought Of(const Place& place) { return {place.group, place.member().key.text}; }
    static const Sought& Of(const Sought& sought) { return sought; }

    template <typename A, typename B>
    bool operator()(const A& a, const B& b) const {
      const Sought& x = Of(a);
      const Sought& y = Of(b);
      return x.group != y.group ? std::less<>()(x.group, y.group) : x.key < y.key;
    }
  };

  // Adds a member with that key to `group`; there is none yet.
  Place AddMember(Group& group, Key key);

  Group& root_;
  Budget& budget_;
  std::pmr::set<Place, Less> places_;  // Of all members.
};

}  // namespace ckptfs::tensorizer
