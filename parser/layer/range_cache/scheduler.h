// Decides which ranges are fetched when: the state machine of the cache. It knows the cached
// blocks, the waiting readers and the running fetches. Threads, locks and the network are outside
// of it, so that a test can drive it through any order of events.
//
//   reader   RecordRead ─ Find ─ cached: Pin, copy, Unpin
//                          └ not cached: Wait ... Find again, or Waiter::error ... Leave
//   fetcher  Take ─ fetch into the frames, calling Arrived ─ Finish
//
// A block is fetched by one fetch at a time for all its readers. Waiting readers come first, in the
// order of their arrival; then prefetches; then read-ahead. How many fetches run at the same time
// follows from what the server does (Link).

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "parser/base/error.h"
#include "parser/io/byte_source.h"
#include "parser/io/remote_object.h"
#include "parser/layer/range_cache/frames.h"
#include "parser/layer/range_cache/link.h"
#include "parser/layer/range_cache/read_ahead.h"

namespace ckptfs {

// A blocked reader. Belongs to the reader; the scheduler refers to it from Wait to Leave.
struct Waiter {
  BlockKey key;            // What it needs first, ...
  size_t begin = 0;        // ... bytes of it from here ...
  size_t needed = 0;       // ... up to here, ...
  uint64_t end_block = 0;  // ... and behind it the blocks before this one.
  ReadAhead::StreamId stream = 0;
  std::optional<Error> error;  // Why it waits in vain.
};

// Blocks of one object that are being fetched, one after another.
struct RangeFetch {
  uint32_t object = 0;
  uint64_t first_block = 0;
  std::vector<Frame*> frames;
  ReadAhead::StreamId stream = 0;
  bool is_awaited = false;  // By a reader, when it was taken.
  bool is_connected = false;
  bool is_head = false;     // It was begun when the object was opened.
  bool is_to_disk = false;  // Its blocks need no memory once they are on the disk.
  bool is_answered = false;
  bool is_repeated = false;  // Stopped, but its blocks are fetched again on another connection.
  uint64_t awaited = 0;      // Bytes that have not arrived.
  std::chrono::steady_clock::time_point started;  // When its request was sent; or the epoch.
  std::stop_source stop;
};

// Guarded by the lock of the cache, but for the bytes of frames.
class Scheduler {
 public:
  using Clock = std::chrono::steady_clock;

  // Keeps at most `memory` bytes, and fetches at most `most_fetches` ranges at once. Read-ahead may
  // fetch `disk` bytes more than `memory`, which a disk cache keeps.
  Scheduler(size_t memory, size_t most_fetches, uint64_t disk = 0);

  // Adds an object of `size` bytes. Returns its number.
  uint32_t AddObject(uint64_t size);

  // Returns the fetch of the head of a new object; null if there is none, or no memory. There may
  // be one more fetch for each head.
  std::unique_ptr<RangeFetch> TakeHead(uint32_t object, const RemoteObject::Head& head,
                                       Clock::time_point now);

  void AdviseFile(uint32_t object, ByteRange range) { read_ahead_.AdviseFile(object, range); }
  void Prefetch(uint32_t object, std::span<const ByteRange> ranges);

  // Records a read of an object. Returns the stream that it belongs to.
  ReadAhead::StreamId RecordRead(uint32_t object, ByteRange read, Clock::time_point now);

  // Returns the frame of a block if its bytes from `begin` to `end` have arrived; else null.
  Frame* Find(const BlockKey& key, size_t begin, size_t end);
  void Pin(Frame& frame) { frames_.Pin(frame); }

  // Blocks that are read to open an object will be read again, so they are not given away.
  void Unpin(Frame& frame, size_t count) {
    frames_.Unpin(frame, read_ahead_.IsOpening(frame.key.object) ? 0 : count);
  }

  void Wait(Waiter& waiter);
  void Leave(Waiter& waiter);

  // Returns the next range to fetch; null if no range is due, memory is missing, or as many fetches
  // run as may. Its frames are busy until Finish.
  std::unique_ptr<RangeFetch> Take(Clock::time_point now);

  // How often Take should be called while readers wait and nothing else happens.
  Clock::duration poll() const;

  // Records that a thread sends the request of a fetch now.
  void Start(RangeFetch& fetch, Clock::time_point now) { fetch.started = now; }

  // Records that a server has answered a fetch, or sent the next `count` bytes for it.
  void Receive(RangeFetch& fetch, size_t count, Clock::time_point now);

  // Records that the bytes of a frame before `filled` have arrived. Returns whether a reader waits
  // for them. Stops the fetch if no reader needs it any more.
  bool Arrived(RangeFetch& fetch, Frame& frame, size_t filled, Clock::time_point now);

  // Records the end of a fetch. `error`, if any, is why not all bytes have arrived; it is
  // passed to the readers that wait for them, unless the fetch was stopped.
  void Finish(std::unique_ptr<RangeFetch> fetch, const std::optional<Error>& error,
              Clock::time_point now);

  // Returns memory that is not used to the system, if nothing has been read for a while. Call it
  // now and then while HoldsMemory().
  void ReleaseIdle(Clock::time_point now);
  bool HoldsMemory() const { return frames_.HoldsMemory(); }

  // Whether idle connections should be closed soon: they have workers of the server, which has few,
  // and which other clients wait for.
  bool HasScarceConnections() const {
    return idle_ > 0 && fetches_.empty() && link_.has_few_workers();
  }

  // Records that all idle connections were closed.
  void ForgetIdle() { idle_ = 0; }

  // Stops all fetches.
  void StopAll();

  // Whether the servers are far away (ByteSource::is_distant).
  bool is_distant() const { return link_.is_long(); }

  size_t memory_used() const { return frames_.used(); }
  size_t memory_busy() const { return frames_.busy(); }
  size_t capacity() const { return frames_.capacity(); }
  size_t fetch_count() const { return fetches_.size(); }
  size_t waiter_count() const { return waiters_.size(); }

 private:
  struct PrefetchRange {
    uint32_t object = 0;
    uint64_t block = 0;  // The next one to fetch.
    uint64_t end_block = 0;
    uint64_t pieces = 1;  // That are fetched at the same time.
  };

  struct RepeatedRange {
    uint32_t object = 0;
    uint64_t block = 0;
    uint64_t end_block = 0;
    ReadAhead::StreamId stream = 0;
  };

  ByteRange RangeOf(const RangeFetch& fetch) const;
  bool IsAwaited(const BlockKey& key) const;
  bool IsPresent(const BlockKey& key, size_t begin = 0);
  bool IsWanted(const RangeFetch& fetch, Clock::time_point now) const;
  bool HasWaiter(const RangeFetch& fetch) const;
  uint64_t PresentUpTo(uint32_t object, uint64_t offset);
  uint64_t PresentDownTo(uint32_t object, uint64_t offset);
  uint64_t BehindPresent(uint32_t object, uint64_t block, uint64_t least);
  const Waiter& FirstOfStream(const Waiter& waiter);
  std::unique_ptr<RangeFetch> TakeFor(const Waiter& waiter, Clock::time_point now);
  void Divide(size_t count);
  std::unique_ptr<RangeFetch> TakeNext(Clock::time_point now);
  std::unique_ptr<RangeFetch> TakeAnnounced(Clock::time_point now);
  std::unique_ptr<RangeFetch> TakeRepeated(Clock::time_point now);
  std::unique_ptr<RangeFetch> TakePrefetch(Clock::time_point now);
  std::unique_ptr<RangeFetch> TakeAhead(Clock::time_point now);
  std::unique_ptr<RangeFetch> Begin(uint32_t object, uint64_t block, uint64_t end_block,
                                    Frames::Need need, Clock::time_point now, size_t begin = 0);
  std::unique_ptr<RangeFetch> TakePlanned(Clock::time_point now);
  void MakeWay(Clock::time_point now);
  static void Repeat(RangeFetch& fetch);
  void AddRepeated(const RangeFetch& fetch);
  void StopUnanswered(Clock::time_point now);
  bool MoveUnanswered(bool is_for_reader, Clock::time_point now);

  Frames frames_;
  Link link_;
  ReadAhead read_ahead_;
  const uint64_t disk_;
  uint64_t to_disk_ = 0;  // Bytes of it that read-ahead has fetched.
  Clock::time_point last_read_;
  Clock::time_point answered_;            // When a request was last answered.
  size_t idle_ = 0;                       // Connections of responses that have ended, at most.
  std::vector<uint64_t> sizes_;           // Of the objects, in bytes.
  std::list<Waiter*> waiters_;            // In the order of arrival.
  std::deque<RepeatedRange> repeated_;    // Of stopped fetches, in order.
  std::deque<PrefetchRange> prefetches_;  // In the order of the calls of Prefetch.
  std::list<RangeFetch*> fetches_;        // All that are under way.
  uint64_t in_flight_ = 0;                // Bytes of them that have not arrived.
};

}  // namespace ckptfs
