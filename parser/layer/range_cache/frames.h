// The memory of the cache: a fixed number of frames, each of which holds one block of an object.
//
// A frame is free; or busy, while a fetch writes to it; or *ahead*, fetched before anybody asked
// for it; or *kept*, because somebody has read from it; or *spent*, because as much was read from
// it as it has: the page cache of the kernel has those bytes now. When a block needs a frame, a
// spent one goes first, before memory is used that never was; then the kept one that was read
// longest ago. One that is ahead goes only for somebody who waits, or when nobody has come for it
// in a while.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <unordered_map>

namespace ckptfs {

struct BlockKey {
  uint32_t object = 0;
  uint64_t block = 0;
  bool operator==(const BlockKey&) const = default;
};

struct Frame {
  enum class Place : uint8_t { kFree, kBusy, kAhead, kKept, kSpent };

  std::byte* bytes = nullptr;  // kBlockSize of them.
  BlockKey key;
  size_t size = 0;  // Of the block, in bytes.
  size_t filled =
      0;            // Bytes from the beginning that have arrived; only a fetch writes behind them.
  size_t read = 0;  // Bytes that have been given to readers; the same ones may count twice.
  unsigned pins = 0;          // Readers that are copying from it.
  bool is_cancelled = false;  // The fetch ended too early; free as soon as nobody copies from it.
  Place place = Place::kFree;
  std::chrono::steady_clock::time_point settled;  // When the fetch had ended.
};

// Guarded by the lock of the cache, but for the bytes.
class Frames {
 public:
  using Clock = std::chrono::steady_clock;

  // For whom a block is wanted.
  enum class Need : uint8_t { kReader, kAhead };

  // Takes address space for `memory` bytes, which are used as they are needed.
  explicit Frames(size_t memory);
  Frames(const Frames&) = delete;
  Frames& operator=(const Frames&) = delete;
  ~Frames();

  // Returns null if the block has no frame.
  Frame* Find(const BlockKey& key);

  // Gives a frame to a block that has none: it is busy and empty. Returns null if there is none to
  // be had. `is_awaited` says of a block that a reader waits for it, so that it has to stay.
  Frame* Add(const BlockKey& key, size_t size, Need need, Clock::time_point now,
             const std::function<bool(const BlockKey&)>& is_awaited);

  // The fetch for a busy frame has ended. One that is not full is free again.
  void Settle(Frame& frame, Clock::time_point now);

  // A reader begins to copy from a frame, so that it stays; and has given `count` bytes of it away.
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
  List kept_;   // ... read longest ago first; ...
  List spent_;  // ... spent first.
  std::unordered_map<BlockKey, List::iterator, Hash> index_;
};

}  // namespace ckptfs
