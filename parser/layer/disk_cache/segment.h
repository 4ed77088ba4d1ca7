// One file of the cache on disk: 4 MiB of an object, the unit of eviction.
//
//   0       header: the segment's identity; 64 bytes, the same in every process
//   4096    index: a checksum of 64 bits for each of the 128 blocks; 0: the block is not cached
//   8192    the blocks, each at its offset; sparse
//
// A block is written before its checksum, so a partial block does not match. The checksum is seeded
// with the object and the number of the block, so bytes of another block or object do not match.
// Integers have the byte order of the machine; for machines of the other byte order the file is
// corrupt.
//
// The file may hold any bytes. It is never mapped into memory, because another process may truncate
// it.

#pragma once

#include <sys/stat.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "parser/base/error.h"
#include "parser/base/fd.h"
#include "parser/io/remote_object.h"

namespace ckptfs {

// Small, so that little of a cache of a few MiB is unused; the index takes 0.2 %.
constexpr uint64_t kSegmentBlocks = 128;

// A segment of an object.
struct SegmentId {
  std::array<std::byte, 32> object = {};  // A hash of its identity and length.
  uint64_t object_size = 0;               // In bytes.
  uint64_t number = 0;                    // Its first block is kSegmentBlocks * number.

  friend bool operator<(const SegmentId& a, const SegmentId& b) {
    return std::tie(a.object, a.object_size, a.number) <
           std::tie(b.object, b.object_size, b.number);
  }
};

// Thread-safe, also between processes.
class Segment {
 public:
  // `file` is a regular file. `may_write`: it was opened for writing.
  Segment(Fd file, const SegmentId& id, bool may_write)
      : file_(std::move(file)), id_(id), may_write_(may_write) {}

  // Returns whether the file is the segment `id`. Writes the header of an empty file if that is
  // allowed.
  bool CheckOrInitialize() const;

  // Reads block `first` + i of the object, which lies in this segment, to blocks[i] for all i, and
  // sets is_cached[i].
  void Read(uint64_t first, std::span<const std::span<std::byte>> blocks,
            std::span<uint8_t> is_cached) const;

  // Writes blocks[i] as block `first` + i of the object, which lies in this segment, for all i.
  // Returns the error if it fails.
  std::optional<Error> Write(uint64_t first,
                             std::span<const std::span<const std::byte>> blocks) const;

  // Marks the segment as used, so that it is evicted last. Costs little if it was marked lately.
  // Returns false if the file has been unlinked: writes are then lost.
  bool Touch() const;

  bool may_write() const { return may_write_; }

 private:
  Fd file_;
  SegmentId id_;
  bool may_write_;
};

}  // namespace ckptfs
