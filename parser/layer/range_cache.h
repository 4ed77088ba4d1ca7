// The cache of all remote bytes: fetches ranges of remote objects, keeps them in a fixed amount of
// memory, and reads ahead.
//
// range_cache/scheduler.h decides which range is fetched when; this file adds the threads and the
// lock. A reader copies cached bytes and waits for the others. A few threads fetch one range at a
// time each into the memory of the cache, from which readers may copy as soon as bytes have
// arrived.

#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "parser/base/mutex.h"
#include "parser/io/byte_source.h"
#include "parser/io/remote_object.h"
#include "parser/layer/disk_cache.h"
#include "parser/layer/range_cache/scheduler.h"

namespace ckptfs {

// Thread-safe.
class RangeCache : public std::enable_shared_from_this<RangeCache> {
 public:
  static constexpr size_t kLeastMemory = size_t{8} << 20;  // Bytes.
  static constexpr size_t kMostFetches = 8;

  // Statistics, in bytes unless noted.
  struct Stats {
    size_t memory = 0;       // The limit.
    size_t used = 0;         // Holds blocks.
    size_t busy = 0;         // Is being fetched.
    size_t fetches = 0;      // Number of running fetches.
    size_t waiting = 0;      // Number of blocked readers.
    uint64_t fetched = 0;    // From servers, so far.
    uint64_t from_disk = 0;  // From the disk cache, so far.
    uint64_t read = 0;       // By readers, so far.
  };

  // Returns the disk cache of an object of `size` bytes. `identity` is its
  // RemoteObject::identity(), not empty.
  using OpenOnDisk = std::function<DiskObjectPtr(std::string_view identity, uint64_t size)>;

  // Keeps at most `memory` bytes, which are kLeastMemory or more; and the blocks that are fetched
  // on a disk, if `open_on_disk` is not empty. Made by make_shared.
  explicit RangeCache(size_t memory, OpenOnDisk open_on_disk = {});
  RangeCache(const RangeCache&) = delete;
  RangeCache& operator=(const RangeCache&) = delete;
  ~RangeCache();  // Stops all fetches, and waits for their end.

  // Returns the object as a cached source, which keeps the cache alive. Reads throw what
  // RemoteObject::Fetch throws, EINTR if the reader is cancelled (cancellation.h), or
  // ECANCELED after Stop.
  ByteSourcePtr Add(RemoteObjectPtr object);

  // Makes all reads fail, both blocked and later ones, and stops all fetches.
  void Stop();

  Stats stats() const;

 private:
  class Cached;
  class FrameDelivery;

  // An object and its disk cache, which may be null.
  struct Object {
    RemoteObjectPtr remote;
    DiskObjectPtr disk;
  };

  void Read(uint32_t object, uint64_t size, uint64_t offset, std::span<std::byte> buffer);
  size_t CopyReady(uint32_t object, uint64_t size, uint64_t offset, std::span<std::byte> buffer)
      REQUIRES(mutex_);
  bool IsReady(uint32_t object, uint64_t size, uint64_t offset, size_t length) REQUIRES(mutex_);
  bool TryRead(uint32_t object, uint64_t size, uint64_t offset, std::span<std::byte> buffer);
  void WaitFor(MutexLock& lock, Waiter& waiter) REQUIRES(mutex_);
  void Dispatch() REQUIRES(mutex_);
  void RunFetches();
  void RunFetch(RangeFetch& fetch);
  void FetchRun(const Object& object, RangeFetch& fetch, size_t begin, size_t end);

  const OpenOnDisk open_on_disk_;

  mutable Mutex mutex_;              // Nothing waits under it.
  std::condition_variable arrived_;  // Wakes readers: bytes have arrived, or a fetch has failed.
  std::condition_variable taken_;    // Wakes fetchers: a range is due.
  Scheduler scheduler_ GUARDED_BY(mutex_);
  std::vector<Object> objects_ GUARDED_BY(mutex_);
  // That no thread has begun yet.
  std::deque<std::unique_ptr<RangeFetch>> fetches_ GUARDED_BY(mutex_);
  Stats stats_ GUARDED_BY(mutex_);  // The last three of it.
  bool is_stopped_ GUARDED_BY(mutex_) = false;

  std::vector<std::jthread> threads_;  // Started by the first Add, joined by the destructor.
};

}  // namespace ckptfs
