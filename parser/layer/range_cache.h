// The cache of all remote bytes: fetches ranges of remote objects, keeps them in a fixed amount of
// memory, and reads ahead.
//
// range_cache/scheduler.h decides which range is fetched when; this file adds the threads and the
// lock. A reader copies cached bytes and waits for the others. A few threads fetch one range at a
// time each into the memory of the cache, from which readers may copy as soon as bytes have
// arrived.

#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "parser/base/error.h"
#include "parser/base/mutex.h"
#include "parser/io/byte_source.h"
#include "parser/io/remote_object.h"
#include "parser/layer/disk_cache.h"
#include "parser/layer/range_cache/scheduler.h"

namespace ckptfs {

// Thread-safe.
class RangeCache : public std::enable_shared_from_this<RangeCache> {
 public:
  static constexpr size_t kLeastMemory = size_t{4} << 20;  // Bytes.
  static constexpr size_t kMostFetches = 64;

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

  struct Settings {
    size_t memory = 0;  // Keeps at most so many bytes: kLeastMemory or more.
    std::chrono::milliseconds timeout = std::chrono::seconds(60);  // Of a read.
    OpenOnDisk open_on_disk;  // Unless empty, keeps the blocks that are fetched on a disk, too.
    uint64_t disk = 0;        // Bytes of the disk that read-ahead may fill.
  };

  // Made by make_shared.
  explicit RangeCache(Settings settings);
  RangeCache(const RangeCache&) = delete;
  RangeCache& operator=(const RangeCache&) = delete;
  ~RangeCache();  // Stops all fetches, and waits for their end.

  // Returns the object as a cached source, which keeps the cache alive. Reads throw what
  // RemoteObject::Fetch throws; ETIMEDOUT soon after the timeout, also if other readers are served
  // first, or if the server has sent nothing for so long while readers waited; EINTR if the reader
  // is cancelled (cancellation.h); ECANCELED after Stop.
  ByteSourcePtr Add(RemoteObjectPtr object);

  // Makes all reads fail, both blocked and later ones, and stops all fetches.
  void Stop();

  Stats stats() const;

 private:
  using Clock = Scheduler::Clock;
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
  void WaitFor(MutexLock& lock, Waiter& waiter, Clock::time_point deadline) REQUIRES(mutex_);
  void ResetSilence(Clock::time_point now) REQUIRES(mutex_);
  [[noreturn]] void FailTimedOut() REQUIRES(mutex_);
  void Dispatch() REQUIRES(mutex_);
  void StartThreads() REQUIRES(mutex_);
  void RunFetches();
  void AwaitFetch(MutexLock& lock) REQUIRES(mutex_);
  void CloseIdle() REQUIRES(mutex_);
  void RecordConnected(RangeFetch& fetch) REQUIRES(mutex_);
  void AwaitConnections(MutexLock& lock) REQUIRES(mutex_);
  void RunFetch(const Object& object, RangeFetch& fetch);
  void FetchRun(const Object& object, RangeFetch& fetch, size_t begin, size_t end);

  const Settings settings_;

  mutable Mutex mutex_;                // Nothing waits under it.
  std::condition_variable arrived_;    // Wakes readers: bytes have arrived, or a fetch has failed.
  std::condition_variable taken_;      // Wakes fetchers: a range is due.
  std::condition_variable connected_;  // Wakes fetchers: readers' fetches have connections.
  Scheduler scheduler_ GUARDED_BY(mutex_);
  std::vector<Object> objects_ GUARDED_BY(mutex_);
  // That no thread has begun yet.
  std::deque<std::unique_ptr<RangeFetch>> fetches_ GUARDED_BY(mutex_);
  size_t unconnected_ GUARDED_BY(mutex_) = 0;  // Fetches for readers without a connection yet.
  Stats stats_ GUARDED_BY(mutex_);             // The last three of it.
  bool is_stopped_ GUARDED_BY(mutex_) = false;

  // Since when readers have waited while no byte has arrived, and when one last waited in vain.
  Clock::time_point silence_ GUARDED_BY(mutex_);
  Clock::time_point failed_ GUARDED_BY(mutex_);
  Clock::time_point ended_ GUARDED_BY(mutex_);       // When the last fetch ended.
  std::optional<Error> failure_ GUARDED_BY(mutex_);  // Of the last fetch, since then.

  // As many as have been needed at the same time. Joined by the destructor.
  std::vector<std::jthread> threads_ GUARDED_BY(mutex_);
  size_t idle_threads_ GUARDED_BY(mutex_) = 0;
};

}  // namespace ckptfs
