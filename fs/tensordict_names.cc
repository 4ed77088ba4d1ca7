#include "fs/tensordict_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <unordered_map>

#include "fs/hash_index.h"
#include "fs/tree.h"
#include "parser/base/error.h"
#include "parser/base/secret_hash.h"
#include "parser/base/utf8.h"

namespace ckptfs {
namespace {

constexpr std::array kReserved = {std::string_view("shape"), std::string_view("device"),
                                  std::string_view("_type"), kSummaryKey};

// A shortened name is one that also usual file systems take, so that the mount can be copied.
constexpr size_t kShortName = 255;
constexpr size_t kHashLength = 17;   // "~" and 16 digits.
constexpr size_t kMaxAddition = 24;  // Bytes of the longest Addition, and some.

// Whether a listing shows a character, which is UTF-8, encoded: all its bytes. A terminal, or who
// reads names line by line, must not take it for anything else.
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

// What ends `key` of the suffixes of files; empty if none does.
std::string_view SuffixOf(std::string_view key) {
  for (const std::string_view suffix : {kTensorSuffix, kTableSuffix, kLongValueSuffix}) {
    if (key.ends_with(suffix)) return suffix;
  }
  return {};
}

// Whether the directory or the table of a member of the root would be called as the index is.
bool HasNameOfIndex(const Wanted& member) {
  constexpr std::string_view kTable = kIndexName.substr(0, kIndexName.size() - kTableSuffix.size());
  return (member.is_directory && member.key == kIndexName) ||
         (member.suffix == kTableSuffix && member.key == kTable);
}

// Whether the file of a member would be called meta.json.
bool HasNameOfMeta(const Wanted& member) {
  constexpr std::string_view kValue =
      kMetaName.substr(0, kMetaName.size() - kLongValueSuffix.size());
  return (member.is_directory && member.key == kMetaName) ||
         (member.suffix == kLongValueSuffix && member.key == kValue);
}

// Whether no member of the directory, or of the root, could have this key.
bool IsImpossible(const Wanted& member, bool is_root) {
  return IsReserved(member.key) || (is_root && HasNameOfIndex(member)) || HasNameOfMeta(member) ||
         member.key.size() > Tree::kMaxName || NameSize(member.key) > Tree::kMaxName ||
         !utf8::IsValid(member.key);
}

// The FNV-1a hash of 64 bits.
uint64_t Hash(std::string_view text) {
  uint64_t hash = 0xCBF29CE484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
  return hash;
}

// Returns `key` with its bytes that are no UTF-8 made visible, or a beginning of that which is too
// long for a name.
std::string Visible(std::string_view key) {
  std::string visible;
  while (!key.empty() && visible.size() <= Tree::kMaxName) {
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
std::string_view Beginning(std::string_view key, size_t size) {
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

// Returns what a key that cannot stay is made of, with room for an Addition.
std::string Base(std::string_view key) {
  std::string base = Visible(key);
  if (NameSize(base) + kMaxAddition <= Tree::kMaxName) return base;
  constexpr size_t kRoom = kShortName - kHashLength - kMaxAddition - kTensorSuffix.size();
  return fmt::format("{}~{:016x}", Beginning(base, kRoom), Hash(key));
}

// What the n-th attempt adds to a key: underscores, but a thousand equal keys must not get a
// thousand of them.
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
  bool Take(const Wanted& member) {
    const uint64_t hash = HashOf(member.key);
    if (Find(hash, member.key) != nullptr || HasNameOfOther(member)) return false;
    has_suffix_ |= member.is_directory && !SuffixOf(member.key).empty();
    index_.Insert(hash, static_cast<uint32_t>(taken_.size()));
    taken_.push_back(member);
    return true;
  }

 private:
  const Wanted* Find(uint64_t hash, std::string_view key) const {
    const uint32_t found = index_.Find(hash, [&](uint32_t i) { return taken_[i].key == key; });
    return found == HashIndex::kNone ? nullptr : &taken_[found];
  }

  // Whether a directory "x.memmap" would stand beside a tensor "x", whichever comes first.
  bool HasNameOfOther(const Wanted& member) const {
    if (member.is_directory) {
      const std::string_view suffix = SuffixOf(member.key);
      const auto key = member.key.substr(0, member.key.size() - suffix.size());
      const Wanted* other = suffix.empty() ? nullptr : Find(HashOf(key), key);
      if (other != nullptr && other->suffix == suffix) return true;
    }
    if (member.suffix.empty() || !has_suffix_) return false;
    const std::string key = std::string(member.key).append(member.suffix);
    const Wanted* other = Find(HashOf(key), key);
    return other != nullptr && other->is_directory;
  }

  std::vector<Wanted> taken_;
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
  const bool is_drive = second < key.size() && key[second] == ':';  // tensordict fears "C:".
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

std::vector<Renamed> Rename(std::span<const Wanted> members, bool is_root) {
  Keys keys(members.size());
  std::vector<Renamed> renamed;
  for (size_t i = 0; i < members.size(); ++i) {
    const Wanted& member = members[i];
    if (IsImpossible(member, is_root) || !keys.Take(member)) {
      renamed.push_back({.index = i, .key = {}});
    }
  }
  // Where the attempts for a base go on: equal keys must not all start from the beginning.
  std::unordered_map<std::string, size_t, SecretHash> attempts;
  for (Renamed& one : renamed) {
    const Wanted& member = members[one.index];
    const std::string base = Base(member.key);
    Wanted attempt;
    do {
      one.key = base + Addition(attempts[base]++);
      attempt = {one.key, member.is_directory, member.suffix};
    } while (IsImpossible(attempt, is_root) || !keys.Take(attempt));
  }
  return renamed;
}

}  // namespace ckptfs
