// The directory of a zip archive: its members and their locations.

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
#include "parser/base/hash.h"
#include "parser/io/byte_source.h"

namespace ckptfs::zip {

enum class Method : uint16_t { kStored = 0, kDeflated = 8, kBzip2 = 12, kLzma = 14 };

// A member whose local header has not been read.
struct DeferredOffset {
  uint64_t header = 0;  // The offset of the header in the source.
  uint64_t next = 0;    // The offset of the next header, or of the central directory.
};

struct Member {
  std::string_view name;                          // Points into the directory it belongs to.
  uint64_t data_offset = 0;                       // Of its bytes in the source.
  std::optional<DeferredOffset> deferred_offset;  // Set if data_offset is provisional.
  uint64_t compressed_size = 0;                   // In bytes; at most the size of the source.
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

  // Returns null if no member has that name.
  const Member* Find(std::string_view name) const;

  // For archives whose names are paths: throws Error(EBADMSG) if one could not be unpacked below a
  // directory (see CheckMemberName), or if two differ only in case.
  void CheckPaths() const;

 private:
  friend Directory ReadDirectory(const ByteSource& source, Budget& budget);

  Directory() = default;
  // Throws Error(EBADMSG) if two members have the same name.
  void IndexNames();

  // Returns the index of the member with that name, whose hash is `hash`, or HashIndex::kNone.
  uint32_t FindHashed(uint64_t hash, std::string_view name) const;

  std::vector<char> text_;          // The central directory as stored; owns the names.
  uint64_t position_ = 0;           // Of the central directory.
  std::deque<std::string> errors_;  // Own the errors.
  std::vector<Member> members_;
  HashIndex names_;  // Of members_.
};

// Reads the directory and the local header of each member; for a remote source, only if this takes
// no further requests or is inevitable. Directory entries ("folder/") are omitted. The members have
// unique names; their bytes lie within the source and do not overlap. Names may be any bytes.
//
// The memory of the directory is charged to `budget`, and never refunded. Throws Error: EBADMSG
// with the offset if the archive is corrupt or contradicts itself, ENOTSUP if it has several parts,
// EFBIG.
Directory ReadDirectory(const ByteSource& source, Budget& budget);

// Whether `tail`, the last bytes of a file, ends in a zip directory.
bool HasEndRecord(std::span<const std::byte> tail);

}  // namespace ckptfs::zip
