// One file of the cache on disk: 64 MiB of an object.
//
//   0       header: what this is a piece of; 64 bytes, the same in every process
//   4096    index: a checksum of 64 bits for each of the 2048 blocks; 0: the block is not here
//   32768   the blocks, each at its place; sparse
//
// A block is written before its checksum, so one that is half written is not here. The checksum is
// seeded with the object and the number of the block: bytes of another block, or another object,
// that come to lie there do not fit. Integers are as the machine has them: to one of the other byte
// order the file is damaged.
//
// The file is bytes that anything may have happened to. It is never mapped into memory, where its
// end could move under a reader.

#pragma once

#include <sys/stat.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <utility>

#include "parser/base/fd.h"
#include "parser/layer/block.h"

namespace ckptfs {

constexpr uint64_t kSegmentBlocks = 2048;

// Which piece of which object.
struct SegmentId {
  std::array<std::byte, 32> object = {};  // A hash of what it is, its length included.
  uint64_t object_size = 0;               // In bytes.
  uint64_t number = 0;  // Of the piece: block kSegmentBlocks * number is its first.

  friend bool operator<(const SegmentId& a, const SegmentId& b) {
    return std::tie(a.object, a.object_size, a.number) <
           std::tie(b.object, b.object_size, b.number);
  }
};

// Thread-safe, also between processes.
class Segment {
 public:
  // `file` is a regular one. `may_write` says how it was opened.
  Segment(Fd file, const SegmentId& id, bool may_write)
      : file_(std::move(file)), id_(id), may_write_(may_write) {}

  // Whether the file is the segment that we want. A new one, which has no header yet, is made one
  // if we may write.
  bool IsRight() const;

  // Reads blocks[i], which is block `first` + i of the object and lies in this segment, for all i,
  // and sets is_here[i]: a byte, so that threads could set neighbours.
  void Read(uint64_t first, std::span<const std::span<std::byte>> blocks,
            std::span<uint8_t> is_here) const;

  // Writes blocks[i], which is block `first` + i of the object and lies in this segment, for all i.
  // Returns 0, or the errno that says why nothing has come of it.
  int Write(uint64_t first, std::span<const std::span<const std::byte>> blocks) const;

  // Says that this is in use: it is the last to be removed then. Costs little if it was said
  // lately. Returns whether the file still has its name; if not, what is written is lost.
  bool Touch() const;

  bool may_write() const { return may_write_; }

 private:
  Fd file_;
  SegmentId id_;
  bool may_write_;
};

}  // namespace ckptfs
