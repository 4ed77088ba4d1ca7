// The directory of a zip archive: which members there are and where their bytes lie.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/budget.h"
#include "parser/io/byte_source.h"

namespace ckptfs::zip {

enum class Method : uint16_t { kStored = 0, kDeflated = 8, kBzip2 = 12, kLzma = 14 };

// A member whose local header has not been read.
struct DeferredOffset {
  uint64_t header = 0;  // Where it is in the source.
  uint64_t next = 0;    // Where what follows the member is: a header or the central directory.
};

struct Member {
  std::string_view name;                          // Points into the directory it belongs to.
  uint64_t data_offset = 0;                       // Where its bytes start in the source.
  std::optional<DeferredOffset> deferred_offset;  // If set, they start there as far as is known.
  uint64_t compressed_size = 0;                   // How many there are; at most the source has.
  uint64_t size = 0;                              // Decoded; equal if stored.
  uint32_t crc = 0;  // Of the decoded bytes; 0 if the writer recorded no CRC.
  Method method = Method::kStored;

  // The error of this member alone (encrypted, unsupported method, impossible size, corrupt local
  // header): its bytes must not be read. May be empty.
  std::string_view error;
};

// All members of an archive, in the order of the central directory. Const and movable: pointers
// into it remain valid when it is moved.
class Directory {
 public:
  Directory(Directory&&) = default;
  Directory& operator=(Directory&&) = default;
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  ~Directory() = default;

  std::span<const Member> members() const { return members_; }

  // Returns null if there is no member of that name.
  const Member* Find(std::string_view name) const;

  // For archives whose names are paths: throws Error(EBADMSG) if there is one that could not be
  // unpacked below a directory (see member_name.h), or if two differ in case only.
  void CheckPaths() const;

 private:
  friend Directory ReadDirectory(const ByteSource& source, Budget& budget);

  // Where to find a member by its name. Unlike a hash table, a sorted array of these cannot be made
  // slow by names that are chosen to collide.
  struct NameHash {
    uint64_t hash;  // Of the name; the same for names that differ in case only.
    size_t member;  // Index into members_.
  };

  Directory() = default;
  void SortNames();

  std::vector<char> text_;          // The central directory as it is in the file; owns the names.
  uint64_t position_ = 0;           // Where that is.
  std::deque<std::string> errors_;  // Own the errors.
  std::vector<Member> members_;
  std::vector<NameHash> names_;  // Sorted.
};

// Reads the directory and the local header of each member; of a remote source, only if this takes
// no further requests, or is inevitable. Directory entries ("folder/") are omitted. The result has
// no two members of one name; their bytes lie within the source and do not overlap. Names may be
// any bytes.
//
// The memory of the directory is charged to `budget`, and never refunded. Throws Error: EBADMSG
// with the offset if the archive is corrupt or contradicts itself, ENOTSUP if it has several parts,
// EFBIG.
Directory ReadDirectory(const ByteSource& source, Budget& budget);

// Whether `tail`, the last bytes of a file, ends in a zip directory.
bool HasEndRecord(std::span<const std::byte> tail);

}  // namespace ckptfs::zip
