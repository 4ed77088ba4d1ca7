// Caches parts of gathered, decrypted and decoded tensors, which are larger than one read, for the
// next reads.

#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "parser/base/mutex.h"

namespace ckptfs {

// Runs jobs one after another in its thread, which the first job starts. Jobs are optional work,
// such as read-ahead: one that takes seconds is interrupted (cancellation.h). Thread-safe.
class Worker {
 public:
  using Job = std::function<void()>;  // Must not throw.

  Worker() = default;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker();  // Interrupts the running job, waits for it, and drops all others.

  // Queues `job`, unless many are queued already.
  void Do(uint64_t owner, Job job);

  // Drops the jobs of `owner`. Interrupts the running one if it is of `owner`, and waits for it.
  void Cancel(uint64_t owner);

 private:
  struct Waiting {
    uint64_t owner = 0;
    Job job;
  };

  void RunJob(const Job& job) const;
  void Run();

  Mutex mutex_;  // No job is run under it.
  std::condition_variable changed_;
  std::deque<Waiting> waiting_ GUARDED_BY(mutex_);
  std::optional<uint64_t> busy_for_ GUARDED_BY(mutex_);  // The owner of the running job.
  bool is_ending_ GUARDED_BY(mutex_) = false;
  std::atomic<bool> is_interrupted_ = false;  // The running job.
  std::thread thread_;  // Started and joined under the lock of the first Do only.
};

// Memory that is returned to the system when it is freed: malloc would keep some.
struct Unmap {
  void* begin = nullptr;
  size_t length = 0;
  void operator()(std::byte* bytes) const noexcept;
};
using Pages = std::unique_ptr<std::byte[], Unmap>;

// Caches the most recently used blocks. A block is a run of bytes that is filled as a whole,
// because that costs hardly more than the part that a read needs.
//
// Concurrent reads of a block share one fill; a failed fill is not cached, and another reader
// retries it. The cache, readers included, never uses more memory than its capacity: it refuses a
// block while all of it is in use. A block is evicted after its size in bytes has been read,
// because the page cache of the kernel has them from then on. A tensor that was read to its end
// leaves only a little spare memory, for the next blocks of the same size. Thread-safe.
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

  // Returns a unique number for an owner of blocks.
  uint64_t NewOwner();

  // Copies bytes at `offset` of the block `key`, which has `size` bytes, to `buffer`. If the block
  // is missing, `fill` fills it, unless it is null. Returns false, without an effect, if there is
  // no block or no room for one. Throws what `fill` throws, and as Cancellation::CheckPreempted
  // does while it waits for the fill of another read.
  bool Read(const Key& key, size_t size, size_t offset, std::span<std::byte> buffer,
            const Fill& fill);

  // Fills the block in a thread of the cache, for future reads, unless that would evict unread
  // blocks. `is_wanted`, which must not call the cache, returns whether reads are still expected.
  // Errors of `fill` are dropped: the read of the block repeats them. Both must be callable until
  // Leave.
  void Prefetch(const Key& key, size_t size, Fill fill, std::function<bool()> is_wanted);

  // Cancels the prefetches of `owner`, and waits for the running one.
  void Leave(uint64_t owner) { worker_.Cancel(owner); }

  // Like Read, for a block without room in the cache, which is filled for this read alone. Such
  // reads take turns, so that together they exceed the capacity by one block only.
  void ReadAlone(size_t size, size_t offset, std::span<std::byte> buffer, const Fill& fill);

  // The memory of all blocks in bytes, without spare memory.
  size_t used() const;

 private:
  struct Block {
    Block(const Key& k, size_t s) : key(k), size(s) {}

    const Key key;
    const size_t size;

    size_t users = 0;  // Reads that need it. Guarded by the cache, ...
    size_t given = 0;  // Bytes that have been read. ... as is this.

    bool is_filling = false;  // A thread owns `bytes` and fills them. Also guarded.
    bool is_filled = false;   // As are both of these.
    Pages bytes;              // Const once it is filled.
  };

  void Prepare(const Key& key, size_t size, const Fill& fill,
               const std::function<bool()>& is_wanted);

  // Adds a block in front, with one user. Null if there is no room for it; `spare_unread` as for
  // MakeRoom.
  Block* Add(const Key& key, size_t size, bool spare_unread, std::list<Block>& evicted)
      REQUIRES(mutex_);

  // Returns the block with one more user; null if it is missing and may not or cannot be added.
  Block* Acquire(const Key& key, size_t size, bool may_make);

  // Releases a block of which `given` bytes have been read.
  void Release(Block& block, size_t given) noexcept;

  // Returns the bytes of an acquired block; null if it is not filled and `fill` is null.
  const std::byte* BytesOf(Block& block, const Fill& fill);

  // Evicts blocks to `evicted` to make room for `size` bytes, except blocks in use and, if
  // `spare_unread`, unread ones. Returns whether there is enough room.
  bool MakeRoom(size_t size, bool spare_unread, std::list<Block>& evicted) REQUIRES(mutex_);

  const size_t capacity_;

  mutable Mutex mutex_;                         // Not held during a fill, nor with another lock.
  std::list<Block> blocks_ GUARDED_BY(mutex_);  // Used last first.
  size_t used_ GUARDED_BY(mutex_) = 0;
  uint64_t owners_ GUARDED_BY(mutex_) = 0;
  bool is_alone_ GUARDED_BY(mutex_) = false;  // A ReadAlone is running.
  std::condition_variable changed_;           // A fill or a ReadAlone has ended.

  // Memory of blocks that were read to their end. Getting new memory from the system takes half as
  // long as decrypting into it.
  struct Spare {
    Pages bytes;
    size_t size = 0;
  };
  std::vector<Spare> spares_ GUARDED_BY(mutex_);  // A few.

  Worker worker_;  // The last member: its jobs use the others.
};

// The blocks of one source, kept in a cache. Reads in order start read-ahead of the next block.
// Thread-safe.
class SequentialBlocks {
 public:
  // Writes all bytes of block `index`. Called by any thread, until Leave. May throw.
  using Fill = std::function<void(uint64_t index, std::span<std::byte> block)>;

  // The source has `size` bytes, in blocks of `block_size`, the last of which may be shorter.
  SequentialBlocks(std::shared_ptr<BlockCache> cache, uint64_t size, uint64_t block_size,
                   Fill fill);
  SequentialBlocks(const SequentialBlocks&) = delete;
  SequentialBlocks& operator=(const SequentialBlocks&) = delete;
  ~SequentialBlocks() { Leave(); }

  // Like BlockCache::Read and BlockCache::ReadAlone. `buffer` lies within the block.
  bool Read(uint64_t index, size_t offset, std::span<std::byte> buffer) const;
  void ReadAlone(uint64_t index, size_t offset, std::span<std::byte> buffer) const;

  // Cancels read-ahead and waits for a running one.
  void Leave() const { cache_->Leave(owner_); }

  uint64_t owner() const { return owner_; }

 private:
  size_t SizeOf(uint64_t index) const;
  void PrefetchNext(uint64_t index) const;

  const std::shared_ptr<BlockCache> cache_;
  const uint64_t owner_;
  const uint64_t size_;
  const uint64_t block_size_;
  const Fill fill_;
  mutable std::atomic<uint64_t> current_;  // The block that was read last.
};

}  // namespace ckptfs
