#include "fs/tensordict_levels.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>

#include "fs/hash_index.h"
#include "fs/tensordict_names.h"
#include "parser/base/secret_hash.h"

namespace ckptfs {
namespace {

constexpr size_t kMaxParts = 32;

bool HasDot(const Member& member) {
  return member.key.kind == Key::Kind::kText && member.key.text.find('.') != std::string::npos;
}

class Splitter {
 public:
  Splitter(Group& group, size_t& room) : group_(group), room_(room) {
    const auto& members = group.members;
    whole_.Reset(members.size());
    for (size_t i = 0; i < members.size(); ++i) {
      const std::string_view key = members[i].key.text;
      const uint64_t hash = HashOf(key);
      if (Find(hash, key) == HashIndex::kNone) whole_.Insert(hash, static_cast<uint32_t>(i));
    }
    items_.reserve(members.size());
    parents_.reserve(members.size());
    for (Member& member : group.members) {
      const std::string_view key = member.key.text;
      const Place place = HasDot(member) ? PlaceOf(key) : Place{};
      Append({.key = key.substr(place.begin), .member = &member}, place.level);
    }
  }

  // Returns the items, level by level, and fills `begins` with where each level begins.
  std::vector<Item> Sorted(std::vector<size_t>& begins) const {
    begins.assign(paths_.size() + 2, 0);
    for (const uint32_t parent : parents_) ++begins[parent + 1];
    std::partial_sum(begins.begin(), begins.end(), begins.begin());
    std::vector<size_t> ends(begins.begin(), begins.end() - 1);
    std::vector<Item> sorted(items_.size());
    for (size_t i = 0; i < items_.size(); ++i) sorted[ends[parents_[i]]++] = items_[i];
    return sorted;
  }

 private:
  static constexpr uint32_t kMember = 0;  // No level is made for the group itself.

  struct Place {
    uint32_t level = 0;
    size_t begin = 0;  // Of what is left of the key.
  };

  void Append(const Item& item, uint32_t parent) {
    items_.push_back(item);
    parents_.push_back(parent);
  }

  Place PlaceOf(std::string_view key) {
    Place place;
    for (size_t parts = 1; parts < kMaxParts; ++parts) {
      const size_t dot = key.find('.', place.begin);
      if (dot == std::string_view::npos) break;
      const auto head = key.substr(place.begin, dot - place.begin);
      const auto tail = key.substr(dot + 1);
      if (head.empty() || tail.empty() || IsReserved(head) || IsReserved(tail)) break;

      const uint32_t level = LevelOf(key.substr(0, dot), head, place.level);
      if (level == kMember) break;
      place = {.level = level, .begin = dot + 1};
    }
    return place;
  }

  // Returns the level of all keys that begin with `path` and a dot, which is called `head` in
  // `parent`; kMember if there can be none.
  uint32_t LevelOf(std::string_view path, std::string_view head, uint32_t parent) {
    const size_t members = group_.members.size();
    const uint64_t hash = HashOf(path);
    const uint32_t known = Find(hash, path);
    if (known != HashIndex::kNone) {
      return known < members ? kMember : LevelOfPath(known - members);
    }
    if (room_ == 0) return kMember;
    --room_;
    whole_.Insert(hash, static_cast<uint32_t>(members + paths_.size()));
    const uint32_t level = LevelOfPath(paths_.size());
    paths_.push_back(path);
    Append({.key = head, .level = level}, parent);
    return level;
  }

  // Returns what has the whole key, as a number in whole_.
  uint32_t Find(uint64_t hash, std::string_view key) const {
    const auto& members = group_.members;
    return whole_.Find(hash, [&](uint32_t number) {
      return number < members.size() ? key == members[number].key.text
                                     : key == paths_[number - members.size()];
    });
  }

  static uint32_t LevelOfPath(size_t path) { return static_cast<uint32_t>(path + 1); }

  Group& group_;
  size_t& room_;
  std::vector<Item> items_;              // In order of appearance.
  std::vector<uint32_t> parents_;        // The level that each of them is in.
  std::vector<std::string_view> paths_;  // Of the levels, but that of the group.
  HashIndex whole_;                      // What has a whole key: members, and then paths_.
};

}  // namespace

Levels::Levels(Group& group, size_t& room) {
  if (room > 0 && std::ranges::any_of(group.members, HasDot)) {
    items_ = Splitter(group, room).Sorted(begins_);
    return;
  }
  items_.reserve(group.members.size());
  for (Member& member : group.members)
    items_.push_back({.key = member.key.text, .member = &member});
  begins_ = {0, items_.size()};
}

}  // namespace ckptfs
