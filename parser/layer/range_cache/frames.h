// The memory of the cache: a fixed number of frames, each of which holds one block of an object.
//
// A frame is free; or busy, while a fetch writes to it; or *ahead*, fetched but not yet read; or
// *used*, after a read; or *spent*, after as many bytes were read as it has: the page cache of the
// kernel has them now. When a block needs a frame, a spent one is evicted first, before unused
// memory is taken; then the least recently used one. An ahead frame is evicted only for a waiting
// reader, or after no ahead frame has been read for a while.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <unordered_map>

#include "parser/io/remote_object.h"

namespace ckptfs {

struct BlockKey {
  uint32_t object = 0;
  uint64_t block = 0;
  bool operator==(const BlockKey&) const = default;
};

struct Frame {
  enum class Place : uint8_t { kFree, kBusy, kAhead, kUsed, kSpent };

  std::byte* bytes = nullptr;  // kBlockSize of them.
  BlockKey key;
  size_t size = 0;   // Of the block, in bytes.
  size_t begin = 0;  // Bytes before it are not fetched.
  // Where what has arrived ends; only a fetch writes behind it.
  size_t filled = 0;
  size_t read = 0;    // Bytes that have been given to readers; the same ones may count twice.
  unsigned pins = 0;  // Readers that are copying from it.
  bool is_cancelled = false;  // The fetch ended early; free once no reader copies from it.
  bool is_planned = false;    // Fetched before a reader wanted it.
  bool is_touched = false;    // The system may have given it memory.
  Place place = Place::kFree;
  std::chrono::steady_clock::time_point settled;  // When the fetch had ended, ...
  uint64_t read_before = 0;                       // ... and Frames::read_ at that time.
};

// Guarded by the lock of the cache, but for the bytes.
class Frames {
 public:
  using Clock = std::chrono::steady_clock;

  // Why a block is needed: a reader waits, a parser that opens an object waits, or read-ahead.
  enum class Need : uint8_t { kReader, kOpening, kAhead };

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

  // The fetch for a busy frame has ended. One that is not full is free again. One that is
  // `is_on_disk` may be evicted as if it had been read.
  void Settle(Frame& frame, bool is_on_disk, Clock::time_point now);

  // Whether Drop may be called: no fetch writes to the frame, and no reader copies from it.
  static bool MayDrop(const Frame& frame) {
    return frame.place != Frame::Place::kBusy && frame.pins == 0;
  }

  // Evicts the block of a frame.
  void Drop(Frame& frame) { Evict(ListOf(frame.place), index_.find(frame.key)->second); }

  // Records that a block was read that had been fetched before: ahead frames stay.
  void RecordHit(Clock::time_point now) { hit_ = now; }

  // Returns the memory of free and spent frames to the system, and of all others that no reader
  // copies from if `all`; so much of it as takes little time.
  void Release(bool all);

  // Whether any frame has memory of the system.
  bool HoldsMemory() const { return touched_ > 0; }

  // Pin keeps a frame while a reader copies from it; Unpin ends that, after `count` bytes.
  void Pin(Frame& frame) { ++frame.pins; }
  void Unpin(Frame& frame, size_t count);

  // Bytes of the frames that are not free, of those that are busy, and of those that are ahead.
  size_t used() const { return index_.size() * kBlockSize; }
  size_t busy() const { return busy_.size() * kBlockSize; }
  size_t ahead() const { return ahead_.size() * kBlockSize; }
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
  bool HasStaleAhead(Clock::time_point now) const;

  const size_t capacity_;  // In bytes; a multiple of a block.
  std::byte* const memory_;
  size_t untouched_;    // Frames of the memory that have never been used; they have no list.
  size_t touched_ = 0;  // Frames that the system may have given memory.
  List free_;
  List busy_;
  List ahead_;         // In the order in which they came; ...
  List used_;          // ... least recently used first; ...
  List spent_;         // ... spent first.
  uint64_t read_ = 0;  // Bytes that have been given to readers.
  Clock::time_point hit_;
  std::unordered_map<BlockKey, List::iterator, Hash> index_;
};

}  // namespace ckptfs
