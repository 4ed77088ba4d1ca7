#include "fs/tensordict_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <string>
#include <unordered_map>

#include "fs/tree.h"
#include "parser/base/error.h"
#include "parser/base/hash.h"
#include "parser/base/text.h"

namespace ckptfs {
namespace {

constexpr std::array kReserved = {std::string_view("shape"), std::string_view("device"),
                                  std::string_view("_type"), kSummaryKey};

// Common file systems accept a shortened name, so that the mount can be copied.
constexpr size_t kShortName = 255;
constexpr size_t kHashLength = 17;   // "~" and 16 digits.
constexpr size_t kMaxAddition = 24;  // Bytes of the longest Addition, and some.

// Whether a listing shows a UTF-8 character percent-encoded, because a terminal or a line-based
// program could misinterpret it.
bool IsEncoded(std::string_view character) {
  return character.size() == 1 ? IsOddInKey(character[0]) : Printable(character) != character;
}

bool HasOnlyAscii(std::string_view key) {
  return std::ranges::all_of(key, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

size_t NameSize(std::string_view key) {
  size_t encoded = 0;
  if (HasOnlyAscii(key)) {
    encoded = static_cast<size_t>(std::ranges::count_if(key, IsOddInKey));
  } else {
    for (auto rest = key; !rest.empty();) {
      const utf8::Character next = utf8::Decode(rest);
      if (IsEncoded(rest.substr(0, next.length))) encoded += next.length;
      rest.remove_prefix(next.length);
    }
  }
  return key.size() + 2 * encoded + kTensorSuffix.size();
}

// Returns the suffix of files that `key` ends with; empty without one.
std::string_view SuffixOf(std::string_view key) {
  for (const std::string_view suffix : {kTensorSuffix, kTableSuffix, kLongValueSuffix}) {
    if (key.ends_with(suffix)) return suffix;
  }
  return {};
}

// Whether the directory or the table of a member of the root would be called as the index is.
bool HasNameOfIndex(const UnnamedMember& member) {
  constexpr std::string_view kTable = kIndexName.substr(0, kIndexName.size() - kTableSuffix.size());
  return (member.is_directory && member.key == kIndexName) ||
         (member.suffix == kTableSuffix && member.key == kTable);
}

// Whether the file of a member would be called meta.json.
bool HasNameOfMeta(const UnnamedMember& member) {
  constexpr std::string_view kValue =
      kMetaName.substr(0, kMetaName.size() - kLongValueSuffix.size());
  return (member.is_directory && member.key == kMetaName) ||
         (member.suffix == kLongValueSuffix && member.key == kValue);
}

// Whether no member of the directory, or of the root, could have this key.
bool IsImpossible(const UnnamedMember& member, bool is_root) {
  return IsReserved(member.key) || (is_root && HasNameOfIndex(member)) || HasNameOfMeta(member) ||
         member.key.size() > Tree::kMaxFuseName || NameSize(member.key) > Tree::kMaxFuseName ||
         !utf8::IsValid(member.key);
}

// The FNV-1a hash of 64 bits.
uint64_t Hash(std::string_view text) {
  uint64_t hash = 0xCBF29CE484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
  return hash;
}

// Returns `key` with bytes that are not UTF-8 made visible, or a beginning of it that is too
// long for a name.
std::string Visible(std::string_view key) {
  std::string visible;
  while (!key.empty() && visible.size() <= Tree::kMaxFuseName) {
    const utf8::Character next = utf8::Decode(key);
    if (next.is_valid) {
      visible += key.substr(0, next.length);
    } else {
      AppendEncoded(visible, key[0]);
    }
    key.remove_prefix(next.length);
  }
  return visible;
}

// Returns as many whole characters from the beginning of `key` as `size` bytes of a name can have.
std::string_view BeginningOfName(std::string_view key, size_t size) {
  size_t length = 0;
  while (length < key.size()) {
    const auto rest = key.substr(length);
    const utf8::Character next = utf8::Decode(rest);
    const bool is_encoded = IsEncoded(rest.substr(0, next.length));
    const size_t need = is_encoded ? 3 * next.length : next.length;
    if (need > size) break;
    size -= need;
    length += next.length;
  }
  return key.substr(0, length);
}

// Returns the base of the new key of a member, with room for an Addition.
std::string Base(std::string_view key) {
  std::string base = Visible(key);
  if (NameSize(base) + kMaxAddition <= Tree::kMaxFuseName) return base;
  constexpr size_t kRoom = kShortName - kHashLength - kMaxAddition - kTensorSuffix.size();
  return fmt::format("{}~{:016x}", BeginningOfName(base, kRoom), Hash(key));
}

// Returns the text that the n-th attempt adds to a key: underscores, but a thousand equal keys must
// not get a thousand of them.
std::string Addition(size_t attempt) {
  constexpr size_t kMost = 4;
  if (attempt <= kMost) return std::string(attempt, '_');
  return fmt::format("{:_<{}}{}", "", kMost, attempt);
}

// The keys that are taken in one directory.
class Keys {
 public:
  explicit Keys(size_t count) {
    taken_.reserve(count);
    index_.Reset(count);
  }

  // Takes the key if it is free. It must outlive this object.
  bool Take(const UnnamedMember& member) {
    const uint64_t hash = HashOf(member.key);
    if (Find(hash, member.key) != nullptr || HasNameOfOther(member)) return false;
    has_suffix_ |= member.is_directory && !SuffixOf(member.key).empty();
    index_.Insert(hash, static_cast<uint32_t>(taken_.size()));
    taken_.push_back(member);
    return true;
  }

 private:
  const UnnamedMember* Find(uint64_t hash, std::string_view key) const {
    const uint32_t found = index_.Find(hash, [&](uint32_t i) { return taken_[i].key == key; });
    return found == HashIndex::kNone ? nullptr : &taken_[found];
  }

  // Whether a directory "x.memmap" would stand beside a tensor "x", whichever comes first.
  bool HasNameOfOther(const UnnamedMember& member) const {
    if (member.is_directory) {
      const std::string_view suffix = SuffixOf(member.key);
      const auto key = member.key.substr(0, member.key.size() - suffix.size());
      const UnnamedMember* other = suffix.empty() ? nullptr : Find(HashOf(key), key);
      if (other != nullptr && other->suffix == suffix) return true;
    }
    if (member.suffix.empty() || !has_suffix_) return false;
    const std::string key = std::string(member.key).append(member.suffix);
    const UnnamedMember* other = Find(HashOf(key), key);
    return other != nullptr && other->is_directory;
  }

  std::vector<UnnamedMember> taken_;
  HashIndex index_;
  bool has_suffix_ = false;  // Whether some directory ends as a file does.
};

}  // namespace

bool IsReserved(std::string_view key) { return std::ranges::count(kReserved, key) != 0; }

std::string DirectoryName(std::string_view key) {
  constexpr std::string_view kUnsafe("/\\%\0", 4);
  const bool is_no_name = key.empty() || key == "." || key == "..";
  const bool is_unsafe = is_no_name || key.find_first_of(kUnsafe) != std::string_view::npos;
  if (is_unsafe || Printable(key) != key) return ListedName(key);
  const size_t second = utf8::Decode(key).length;
  const bool is_drive = second < key.size() && key[second] == ':';  // tensordict rejects "C:".
  return is_drive ? ListedName(key) : std::string(key);
}

std::string ListedName(std::string_view key) {
  if (key.empty() || key == "." || key == ".." || HasOnlyAscii(key)) return EncodeKey(key);
  std::string name;
  name.reserve(key.size());
  while (!key.empty()) {
    const utf8::Character next = utf8::Decode(key);
    const auto bytes = key.substr(0, next.length);
    if (IsEncoded(bytes)) {
      for (const char c : bytes) AppendEncoded(name, c);
    } else {
      name += bytes;
    }
    key.remove_prefix(next.length);
  }
  return name;
}

bool IsFileName(std::string_view key) {
  constexpr std::string_view kForbidden("/\0", 2);
  return key.find_first_of(kForbidden) == std::string_view::npos;
}

std::vector<Renamed> Rename(std::span<const UnnamedMember> members, bool is_root) {
  Keys keys(members.size());
  std::vector<Renamed> renamed;
  for (size_t i = 0; i < members.size(); ++i) {
    const UnnamedMember& member = members[i];
    if (IsImpossible(member, is_root) || !keys.Take(member)) {
      renamed.push_back({.index = i, .key = {}});
    }
  }
  // The number of the next attempt for a base: equal keys must not all start from the beginning.
  std::unordered_map<std::string, size_t, SecretHash> attempts;
  for (Renamed& one : renamed) {
    const UnnamedMember& member = members[one.index];
    const std::string base = Base(member.key);
    UnnamedMember attempt;
    do {
      one.key = base + Addition(attempts[base]++);
      attempt = {one.key, member.is_directory, member.suffix};
    } while (IsImpossible(attempt, is_root) || !keys.Take(attempt));
  }
  return renamed;
}

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
  // `parent`; kMember if it cannot exist.
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

  // Returns the entry with the whole key, as a number in whole_.
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
  HashIndex whole_;                      // Entries with a whole key: members, and then paths_.
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
