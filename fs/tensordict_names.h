// Keys of tensordict and the names of their files.
//
// The key of a tensor may be any text: "", "..", "a/b", three thousand bytes that are not
// UTF-8, twice the same. A directory cannot, and tensordict finds a file by the key alone. So names
// come in two steps. First each member of a directory gets a key that can stand in its meta.json,
// nearly always the one it has:
//
//   no UTF-8          its bytes become visible: "w%FF"
//   too long          its beginning, "~" and a hash of all of it
//   reserved, taken   with underscores until it is free: "shape_"
//
// Then the file name follows from the key alone, as in tensordict since 0.13: special
// characters are percent-encoded. Encoding is injective, so different keys have different files.
// Only a directory could have the name of a file, and such keys count as taken.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/encoding.h"  // IWYU pragma: export
#include "parser/checkpoint.h"

namespace ckptfs {

constexpr std::string_view kTensorSuffix = ".memmap";
constexpr std::string_view kTableSuffix = ".jsonl";
constexpr std::string_view kLongValueSuffix = ".json";
constexpr std::string_view kSizesSuffix = ".shape.memmap";
constexpr std::string_view kInnerName = "_tensordict";
constexpr std::string_view kMetaName = "meta.json";
constexpr std::string_view kIndexName = "tensors.jsonl";  // In the root; see tensordict_index.h.
constexpr std::string_view kSummaryKey = "_ckptfs";  // In the root's meta.json: about the mount.

// Whether `key` is a member of meta.json that is not a key of tensordict.
bool IsReserved(std::string_view key);

// Returns the name of the directory of a key: the key as it is where tensordict 0.14 looks for
// that, because older versions look for nothing else; else encoded. Encoded names have a '%', the
// others do not.
std::string DirectoryName(std::string_view key);

// Returns the name that a listing shows for the file of a key, without its suffix: encoded as
// tensordict encodes it, with control characters of terminals encoded as well.
std::string ListedName(std::string_view key);

// Whether `key` with a suffix can be the name of a file as it is, as in tensordict < 0.13.
bool IsFileName(std::string_view key);

// A member to be named in a directory.
struct UnnamedMember {
  std::string_view key;  // Any bytes.
  bool is_directory = false;
  std::string_view suffix = {};  // Of its file: that of tensors, ...; may be empty.
};

// A member whose key is taken or invalid.
struct Renamed {
  size_t index = 0;  // In the list of all.
  std::string key;
};

// Returns those of `members` of a directory, or of the root, that need other keys, and these keys,
// in their order. Then all keys are valid UTF-8, not reserved and different, and the file names
// that follow from them are legal, different and not longer than Tree::kMaxFuseName. Among equal
// keys the first one stays. The same members always get the same keys.
std::vector<Renamed> Rename(std::span<const UnnamedMember> members, bool is_root = false);

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
