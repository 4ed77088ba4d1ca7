// The tree of groups that the names of tensors form.

#pragma once

#include <cstddef>
#include <memory>
#include <memory_resource>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/budget.h"
#include "parser/checkpoint.h"

namespace ckptfs::tensorizer {

// A member of a group, by number: members move when others are added.
struct TreePosition {
  Group* group = nullptr;
  size_t number = 0;

  Member& member() const { return group->members[number]; }
};

// Creates the groups for names. Rejects conflicting names, as tensorizer does: duplicates, a name
// below that of a tensor, texts and numbers in one group. Belongs to one thread.
class TreeBuilder {
 public:
  // Fills `root`, which is empty and must not move. Groups and keys are charged to `budget`.
  TreeBuilder(Group& root, Budget& budget) : root_(root), budget_(budget), places_(&budget) {}

  // Adds a member at `path`, which is not empty; the caller sets its content. Positions are valid
  // until Finish. Throws Error.
  TreePosition Add(std::vector<Key> path);

  // Turns groups with the keys 0, 1, ... into lists, in that order.
  void Finish();

 private:
  struct Sought {
    const Group* group;
    std::string_view key;
  };

  struct Less {
    using is_transparent = void;

    static Sought Of(const TreePosition& place) { return {place.group, place.member().key.text}; }
    static const Sought& Of(const Sought& sought) { return sought; }

    template <typename A, typename B>
    bool operator()(const A& a, const B& b) const {
      const Sought& x = Of(a);
      const Sought& y = Of(b);
      return x.group != y.group ? std::less<>()(x.group, y.group) : x.key < y.key;
    }
  };

  // Adds a member with a new key to `group`.
  TreePosition AddMember(Group& group, Key key);

  Group& root_;
  Budget& budget_;
  std::pmr::set<TreePosition, Less> places_;  // Of all members.
};

// A name is UTF-8 text, or, if its first byte is 0x1E, a JSON array of the keys of the tensor:
// texts and whole numbers. tensorizer writes nested state dicts this way since 2.9; an array of one
// text equals that text.

constexpr size_t kMaxDepth = 64;  // Keys of a name.

// Returns the keys of a name, at least one. Texts are UTF-8, except that lone surrogates, which
// Python allows, are encoded like other characters. Throws Error(EBADMSG).
std::vector<Key> ReadName(std::string_view stored);

// Returns the keys, joined by dots, for messages.
std::string ShownName(std::string_view stored);

}  // namespace ckptfs::tensorizer
