// The records of a zip archive around its central directory: the end records, which locate it, and
// the local headers, which precede the data of each member.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "parser/codec/zip.h"
#include "parser/io/byte_source.h"

namespace ckptfs::zip {

// The location of the central directory, which lies within the file and is long enough for its
// entries.
struct End {
  uint64_t directory = 0;  // Offset of the central directory in the file.
  uint64_t size = 0;       // Of the central directory, in bytes.
  uint64_t entries = 0;    // Of the central directory.
  uint64_t archive = 0;    // Offset of the archive in the file, to which others are relative.
};

constexpr uint64_t kEntrySize =
    46;  // Of an entry of the central directory without its name, bytes.

// A file whose last bytes are in memory: the end records, and often the central directory.
class Tail {
 public:
  // Reads the last bytes of `source`, which must outlive this: as many as an end record may take,
  // or only a few if they contain an end record at the end of the file, which would be found in any
  // case. Throws what reading throws.
  explicit Tail(const ByteSource& source);

  std::span<const std::byte> bytes() const { return bytes_; }
  uint64_t begin() const { return source_.size() - bytes_.size(); }  // In the file.

  // Reads bytes of the file, wherever they are.
  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const;

 private:
  const ByteSource& source_;
  std::vector<std::byte> bytes_;
};

// Reads the end record, and the zip64 end record if there is one. Throws as ReadDirectory does.
End ReadEnd(const Tail& tail);

// Returns the position of the end record in `tail`, the last bytes of a file: the last one whose
// comment fills the rest of the file, or else the last one.
std::optional<size_t> FindEndRecord(std::span<const std::byte> tail);

// Local headers.
//
// Only they contain the length of the extra fields before the data. On a disk all of them are read
// with the directory. Over a network that would take a request for each member, so most are read
// with the member: data end where the next header, or the descriptor before it, begins, which gives
// their provisional offset. Writers of checkpoints leave no gaps. If one does, or a header that was
// fetched with the directory contradicts this, all headers are read.

// A local header, as the directory describes it.
struct LocalHeader {
  uint64_t begin = 0;       // In the file.
  uint64_t end = 0;         // Without its extra fields.
  size_t member = 0;        // Index.
  uint64_t descriptor = 0;  // Bytes that probably follow the data.
};

// Locates the data of members, and sets their data_offset, or deferred_offset. `headers` are of
// different members, in any order, and are sorted. `begins` are the offsets of all local headers,
// including those of unreadable members; empty if `source` is not remote. Bytes from `tail` on were
// fetched with the directory. Calls `on_damage` for each invalid header. Throws Error: EBADMSG, and
// what reading throws.
void LocateAll(const ByteSource& source, std::span<LocalHeader> headers,
               std::vector<uint64_t> begins, std::span<Member> members, uint64_t directory,
               uint64_t tail, const std::function<void(const LocalHeader& header)>& on_damage);

// Whether a file that begins with `head` is an archive of torch.save, whose first member is the
// pickle.
bool BeginsWithPickle(std::span<const std::byte> head);

// Bytes of the local header of `member` but for its extra fields.
uint64_t LocalSize(const Member& member);

// Returns the offset of the bytes of a member with a deferred offset. `header` is the first
// LocalSize bytes of its local header. Throws Error(EBADMSG) if it is not a local header, or that
// of another member, or if the member overlaps what follows it.
uint64_t LocateMember(const Member& member, std::span<const std::byte> header);

}  // namespace ckptfs::zip
