// DecompressorPool that stand still somewhere in their streams, until somebody reads on from there.

#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>

#include "parser/layer/decompressor.h"

namespace ckptfs {

// Bounds the memory of all decompressors, those at work included: it is at most the capacity, or that of
// the largest one if that is more. Those that were not used for longest make room; if there are
// none, who needs a decoder waits until others are done with theirs. Thread-safe.
class DecompressorPool {
 public:
  // Gives back the memory of a decoder that is at work.
  struct Return {
    DecompressorPool* decompressors = nullptr;
    void operator()(Decompressor* decompressor) const noexcept;
  };

  // A decoder at work. Must not outlive the DecompressorPool that it is from.
  using Working = std::unique_ptr<Decompressor, Return>;

  explicit DecompressorPool(size_t capacity = size_t{32} << 20) : capacity_(capacity) {}

  // Puts a decoder to work, once there is memory for it. The thread must have no other one. Throws
  // as Cancellation::CheckPreempted does while it waits.
  Working Start(std::unique_ptr<Decompressor> decompressor);

  // Returns the decoder that `owner` has kept which stands at `end` or nearest before it, but not
  // before `begin`; null if there is none.
  Working Take(uint64_t owner, uint64_t begin, uint64_t end);

  // Keeps a decoder where it stands, as long as its memory is not needed.
  void Keep(uint64_t owner, Working decompressor);

  // Drops all decompressors of `owner`.
  void Drop(uint64_t owner);

  // Memory of all decompressors, in bytes.
  size_t used() const;

 private:
  struct Kept {
    uint64_t owner = 0;
    Working decompressor;
  };

  const size_t capacity_;
  mutable std::mutex mutex_;  // No decoder is made or destroyed under it.
  std::condition_variable changed_;
  size_t used_ = 0;  // Bytes.

  // Kept last first. The last member: its destructor uses the others.
  std::list<Kept> kept_;
};

}  // namespace ckptfs
