// Who gets which bytes when: the state machine of the cache. It knows what is there, who waits for
// what, and what is being fetched; threads, locks and the network are outside of it, so that a test
// can drive it through any order of events.
//
//   reader   Annotation ─ Find ─ there: Pin, copy, Unpin
//                     └ not there: Wait ... Find again, or Waiter::error ... Leave
//   fetcher  Take ─ fetch into the frames, saying Arrived ─ Finish
//
// A block is fetched by one fetch at a time, whoever waits for it. Who waits comes first, in the
// order of their coming; then what was said to be read soon; then what streams are going to read,
// as long as that leaves a fetch for those who wait.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <list>
#include <memory>
#include <span>
#include <stop_token>
#include <vector>

#include "parser/io/byte_source.h"
#include "parser/layer/range_cache/frames.h"
#include "parser/layer/range_cache/read_ahead.h"

namespace ckptfs {

// A reader that waits. Belongs to the reader; the scheduler knows it from Wait to Leave.
struct Waiter {
  BlockKey key;            // What it needs first, ...
  size_t needed = 0;       // ... as many bytes of it, ...
  uint64_t end_block = 0;  // ... and behind it the blocks before this one.
  ReadAhead::StreamId stream = 0;
  std::exception_ptr error;  // Why it waits in vain.
};

// Blocks of one object that are being fetched, one after another.
struct RangeFetch {
  uint32_t object = 0;
  uint64_t first_block = 0;
  std::vector<Frame*> frames;
  ReadAhead::StreamId stream = 0;
  bool is_ahead = false;  // Nobody waited for it when it began.
  std::stop_source stop;
};

// Guarded by the lock of the cache, but for the bytes of frames.
class Scheduler {
 public:
  using Clock = std::chrono::steady_clock;

  // Keeps at most `memory` bytes, and fetches at most `most_fetches` ranges at once.
  Scheduler(size_t memory, size_t most_fetches);

  // Adds an object of `size` bytes, which begins with `head`. Returns its number.
  uint32_t AddObject(uint64_t size, std::span<const std::byte> head, Clock::time_point now);

  void AdviseFile(uint32_t object, ByteRange range) { read_ahead_.AdviseFile(object, range); }
  void Prefetch(uint32_t object, std::span<const ByteRange> ranges);

  // Annotations that `read` of an object is being read. Returns the stream that it belongs to.
  ReadAhead::StreamId Annotation(uint32_t object, ByteRange read, Clock::time_point now);

  // Returns the frame of a block, if the first `needed` bytes of it are there; else null.
  Frame* Find(const BlockKey& key, size_t needed);
  void Pin(Frame& frame) { frames_.Pin(frame); }

  // What is read to open an object will be read again, so it is not given away.
  void Unpin(Frame& frame, size_t count) {
    frames_.Unpin(frame, read_ahead_.IsOpening(frame.key.object) ? 0 : count);
  }

  void Wait(Waiter& waiter);
  void Leave(Waiter& waiter);

  // The next range to be fetched; null if there is none, or no memory for it, or enough is being
  // fetched. Its frames are busy until Finish.
  std::unique_ptr<RangeFetch> Take(Clock::time_point now);

  // Says that bytes of a frame of a fetch have come, `filled` in all. Returns whether somebody
  // waits for these. Stops the fetch if nobody is interested in it any more.
  bool Arrived(RangeFetch& fetch, Frame& frame, size_t filled, Clock::time_point now);

  // A fetch has ended; `error`, if not null, is why not all has come. Who waits for what has not
  // come learns of it, but if the fetch was stopped.
  void Finish(std::unique_ptr<RangeFetch> fetch, const std::exception_ptr& error,
              Clock::time_point now);

  // Stops all that is being fetched.
  void StopAll();

  size_t memory_used() const { return frames_.used(); }
  size_t memory_busy() const { return frames_.busy(); }
  size_t capacity() const { return frames_.capacity(); }
  size_t fetch_count() const { return fetches_.size(); }
  size_t waiter_count() const { return waiters_.size(); }

 private:
  struct PrefetchRange {
    uint32_t object = 0;
    uint64_t block = 0;
    uint64_t end_block = 0;
  };

  bool IsAwaited(const BlockKey& key) const;
  bool IsWanted(const RangeFetch& fetch, Clock::time_point now) const;
  uint64_t PresentUpTo(uint32_t object, uint64_t offset);
  std::unique_ptr<RangeFetch> TakeFor(const Waiter& waiter, Clock::time_point now);
  std::unique_ptr<RangeFetch> TakePrefetch(Clock::time_point now);
  std::unique_ptr<RangeFetch> TakeAhead(Clock::time_point now);
  std::unique_ptr<RangeFetch> Begin(uint32_t object, uint64_t block, uint64_t end_block,
                                    Frames::Need need, Clock::time_point now);
  void MakeWay(Clock::time_point now);

  const size_t most_fetches_;
  Frames frames_;
  ReadAhead read_ahead_;
  std::vector<uint64_t> sizes_;           // Of the objects, in bytes.
  std::list<Waiter*> waiters_;            // First come first.
  std::deque<PrefetchRange> prefetches_;  // What was said to be read soon.
  std::list<RangeFetch*> fetches_;        // All that are under way.
  size_t ahead_count_ = 0;                // Of these, those that nobody waited for.
};

}  // namespace ckptfs
