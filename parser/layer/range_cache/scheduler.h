// Decides which ranges are fetched when: the state machine of the cache. It knows the cached
// blocks, the waiting readers and the running fetches. Threads, locks and the network are outside
// of it, so that a test can drive it through any order of events.
//
//   reader   RecordRead ─ Find ─ cached: Pin, copy, Unpin
//                          └ not cached: Wait ... Find again, or Waiter::error ... Leave
//   fetcher  Take ─ fetch into the frames, calling Arrived ─ Finish
//
// A block is fetched by one fetch at a time for all its readers. Waiting readers come first, in the
// order of their arrival; then prefetches; then read-ahead, as long as one fetch is left for
// waiting readers.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <stop_token>
#include <unordered_map>
#include <vector>

#include "parser/io/byte_source.h"
#include "parser/layer/range_cache/read_ahead.h"

namespace ckptfs {

// The memory of the cache: a fixed number of frames, each of which holds one block of an object.
//
// A frame is free; or busy, while a fetch writes to it; or *ahead*, fetched but not yet read; or
// *used*, after a read; or *spent*, after as many bytes were read as it has: the page cache of the
// kernel has them now. When a block needs a frame, a spent one is evicted first, before unused
// memory is taken; then the least recently used one. An ahead frame is evicted only for a waiting
// reader, or after it has not been read for a while.

struct BlockKey {
  uint32_t object = 0;
  uint64_t block = 0;
  bool operator==(const BlockKey&) const = default;
};

struct Frame {
  enum class Place : uint8_t { kFree, kBusy, kAhead, kUsed, kSpent };

  std::byte* bytes = nullptr;  // kBlockSize of them.
  BlockKey key;
  size_t size = 0;  // Of the block, in bytes.
  size_t filled =
      0;            // Bytes from the beginning that have arrived; only a fetch writes behind them.
  size_t read = 0;  // Bytes that have been given to readers; the same ones may count twice.
  unsigned pins = 0;          // Readers that are copying from it.
  bool is_cancelled = false;  // The fetch ended early; free once no reader copies from it.
  Place place = Place::kFree;
  std::chrono::steady_clock::time_point settled;  // When the fetch had ended.
};

// Guarded by the lock of the cache, but for the bytes.
class Frames {
 public:
  using Clock = std::chrono::steady_clock;

  // Why a block is needed: a reader waits, or read-ahead.
  enum class Need : uint8_t { kReader, kAhead };

  // Takes address space for `memory` bytes, which are used as they are needed.
  explicit Frames(size_t memory);
  Frames(const Frames&) = delete;
  Frames& operator=(const Frames&) = delete;
  ~Frames();

  // Returns null if the block has no frame.
  Frame* Find(const BlockKey& key);

  // Gives a frame to a block that has none: it is busy and empty. Returns null if no frame is
  // available. `is_awaited` returns whether a reader waits for a block, which must then stay.
  Frame* Add(const BlockKey& key, size_t size, Need need, Clock::time_point now,
             const std::function<bool(const BlockKey&)>& is_awaited);

  // The fetch for a busy frame has ended. One that is not full is free again.
  void Settle(Frame& frame, Clock::time_point now);

  // Pin keeps a frame while a reader copies from it; Unpin ends that, after `count` bytes.
  void Pin(Frame& frame) { ++frame.pins; }
  void Unpin(Frame& frame, size_t count);

  // Bytes of the frames that are not free, and of those that are busy.
  size_t used() const;
  size_t busy() const;
  size_t capacity() const { return capacity_; }

 private:
  using List = std::list<Frame>;
  struct Hash {
    size_t operator()(const BlockKey& key) const {
      return std::hash<uint64_t>()(key.block * 0x9e3779b97f4a7c15U + key.object);
    }
  };

  List& ListOf(Frame::Place place);
  void Move(List::iterator frame, Frame::Place place);
  bool Evict(List& list, List::iterator found);

  const size_t capacity_;  // In bytes; a multiple of a block.
  std::byte* const memory_;
  size_t untouched_;  // Frames of the memory that have never been used; they have no list.
  List free_;
  List busy_;
  List ahead_;  // In the order in which they came; ...
  List used_;   // ... least recently used first; ...
  List spent_;  // ... spent first.
  std::unordered_map<BlockKey, List::iterator, Hash> index_;
};

// A blocked reader. Belongs to the reader; the scheduler refers to it from Wait to Leave.
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
  bool is_ahead = false;  // No reader waited for it when it began.
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

  // Records a read of an object. Returns the stream that it belongs to.
  ReadAhead::StreamId RecordRead(uint32_t object, ByteRange read, Clock::time_point now);

  // Returns the frame of a block if its first `needed` bytes have arrived; else null.
  Frame* Find(const BlockKey& key, size_t needed);
  void Pin(Frame& frame) { frames_.Pin(frame); }

  // What is read to open an object will be read again, so it is not given away.
  void Unpin(Frame& frame, size_t count) {
    frames_.Unpin(frame, read_ahead_.IsOpening(frame.key.object) ? 0 : count);
  }

  void Wait(Waiter& waiter);
  void Leave(Waiter& waiter);

  // Returns the next range to fetch; null if no range is due, memory is missing, or as many fetches
  // run as may. Its frames are busy until Finish.
  std::unique_ptr<RangeFetch> Take(Clock::time_point now);

  // Records that the first `filled` bytes of a frame have arrived. Returns whether a reader waits
  // for them. Stops the fetch if no reader needs it any more.
  bool Arrived(RangeFetch& fetch, Frame& frame, size_t filled, Clock::time_point now);

  // Records the end of a fetch. `error`, if not null, is why not all bytes have arrived; it is
  // passed to the readers that wait for them, unless the fetch was stopped.
  void Finish(std::unique_ptr<RangeFetch> fetch, const std::exception_ptr& error,
              Clock::time_point now);

  // Stops all fetches.
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
  std::list<Waiter*> waiters_;            // In the order of arrival.
  std::deque<PrefetchRange> prefetches_;  // In the order of the calls of Prefetch.
  std::list<RangeFetch*> fetches_;        // All that are under way.
  size_t ahead_count_ = 0;                // Of these, those for read-ahead.
};

}  // namespace ckptfs
