// Parts of gathered and of encrypted tensors that were made for one read and will serve the next
// ones.

#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "parser/layer/worker.h"

namespace ckptfs {

// Memory that is the system's again as soon as it is not needed: malloc would keep some.
struct Unmap {
  void* begin = nullptr;
  size_t length = 0;
  void operator()(std::byte* bytes) const noexcept;
};
using Pages = std::unique_ptr<std::byte[], Unmap>;

// Keeps the blocks that were used last. A block is a run of bytes that is made as a whole, because
// making all of it costs hardly more than making the part that a read asks for.
//
// Concurrent reads of a block share one fill; a failed fill is not remembered: one of the others
// tries again. The cache never has
// more memory than its capacity, readers included: where all of it is in use, it refuses. A block
// of which as many bytes have been read as it has is forgotten, since the page cache of the kernel
// has them from then on; so a tensor that was read to its end leaves nothing here but a little
// memory, in which the next blocks of the same size are made. Thread-safe.
class BlockCache {
 public:
  // Writes all bytes of a block. May throw.
  using Fill = std::function<void(std::span<std::byte> block)>;

  struct Key {
    uint64_t owner = 0;  // From NewOwner.
    uint64_t index = 0;
    bool operator==(const Key&) const = default;
  };

  explicit BlockCache(size_t capacity = size_t{16} << 20) : capacity_(capacity) {}

  // Returns a number that no other owner of blocks has.
  uint64_t NewOwner();

  // Copies what is at `offset` of the block `key`, which has `size` bytes, to `buffer`. If the
  // block is not there, `fill` makes it, unless it is null. Returns false, having done nothing, if
  // there is no block or no room for one. Throws what `fill` throws, and as Cancellation::CheckPreempted
  // does while it waits for the fill of another read.
  bool Read(const Key& key, size_t size, size_t offset, std::span<std::byte> buffer,
            const Fill& fill);

  // Has a thread of the cache make the block, for reads to come, unless that would take the place
  // of blocks that have not been read yet. `is_wanted`, which must not call the cache, says whether
  // there still are reads to come. What `fill` throws is forgotten: whoever reads the block will be
  // told. Both must be callable until Leave.
  void Prefetch(const Key& key, size_t size, Fill fill, std::function<bool()> is_wanted);

  // Forgets what has been asked for blocks of `owner`, and waits for what is under way.
  void Leave(uint64_t owner) { worker_.Cancel(owner); }

  // As Read, for a block that there is no room for: it is made for this read alone. Such reads take
  // turns, so that all of them need memory for one block more than the capacity.
  void ReadAlone(size_t size, size_t offset, std::span<std::byte> buffer, const Fill& fill);

  // Memory that all blocks take now, in bytes, without what is kept for the next ones.
  size_t used() const;

 private:
  struct Block {
    Block(const Key& k, size_t s) : key(k), size(s) {}

    const Key key;
    const size_t size;

    size_t users = 0;  // Reads that need it. Guarded by the cache, ...
    size_t given = 0;  // Bytes that have been read. ... as is this.

    bool is_filling = false;  // A thread is at it, and has `bytes` for itself. Also guarded.
    bool is_filled = false;   // As are both of these.
    Pages bytes;              // Const once it is filled.
  };

  void Prepare(const Key& key, size_t size, const Fill& fill,
               const std::function<bool()>& is_wanted);

  // Adds a block in front, which has one user. Null if there is no room for it; `spare_unread` as
  // for MakeRoom. The caller holds the mutex.
  Block* Add(const Key& key, size_t size, bool spare_unread, std::list<Block>& evicted);

  // Returns the block, which has one more user, or null if it is not there and may or can not be.
  Block* Acquire(const Key& key, size_t size, bool may_make);

  // Takes back a block of which `given` bytes have been read.
  void Release(Block& block, size_t given) noexcept;

  // Returns the bytes of an acquired block; null if it is not filled and `fill` is null.
  const std::byte* BytesOf(Block& block, const Fill& fill);

  // Moves the blocks that must go for `size` bytes more to `evicted`, but those in use, and if
  // `spare_unread`, those that have not been read. Returns whether that is enough. The caller holds
  // the mutex.
  bool MakeRoom(size_t size, bool spare_unread, std::list<Block>& evicted);

  const size_t capacity_;

  mutable std::mutex mutex_;  // Nothing else is done under it: no fill, no other lock.
  std::list<Block> blocks_;   // Used last first.
  size_t used_ = 0;
  uint64_t owners_ = 0;
  bool is_alone_ = false;            // A read has a block for itself.
  std::condition_variable changed_;  // A fill has ended, or such a read.

  // Memory of blocks that were read to their end. To be given new memory by the system takes half
  // as long as decrypting something into it.
  struct Spare {
    Pages bytes;
    size_t size = 0;
  };
  std::vector<Spare> spares_;  // A few.

  Worker worker_;  // The last member: its jobs use the others.
};

}  // namespace ckptfs
