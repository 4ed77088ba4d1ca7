#include "parser/layer/range_cache/scheduler.h"

#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <iterator>
#include <new>
#include <utility>

#include "parser/io/prefetch.h"
#include "parser/io/remote_object.h"

namespace ckptfs {
namespace {

constexpr std::chrono::seconds kAheadLifetime{
    10};  // The time that an unread ahead block is kept for other read-ahead.

std::byte* Reserve(size_t size) {
  void* const memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return static_cast<std::byte*>(memory);
}

}  // namespace

Frames::Frames(size_t memory)
    : capacity_(std::max(memory / kBlockSize, size_t{1}) * kBlockSize),
      memory_(Reserve(capacity_)),
      untouched_(capacity_ / kBlockSize) {}

Frames::~Frames() { ::munmap(memory_, capacity_); }

Frame* Frames::Find(const BlockKey& key) {
  const auto found = index_.find(key);
  return found == index_.end() ? nullptr : &*found->second;
}

Frames::List& Frames::ListOf(Frame::Place place) {
  switch (place) {
    case Frame::Place::kFree:
      return free_;
    case Frame::Place::kBusy:
      return busy_;
    case Frame::Place::kAhead:
      return ahead_;
    case Frame::Place::kUsed:
      return used_;
    case Frame::Place::kSpent:
      break;
  }
  return spent_;
}

void Frames::Move(List::iterator frame, Frame::Place place) {
  List& to = ListOf(place);
  to.splice(to.end(), ListOf(frame->place), frame);
  frame->place = place;
}

bool Frames::Evict(List& list, List::iterator found) {
  if (found == list.end()) return false;
  index_.erase(found->key);
  Move(found, Frame::Place::kFree);
  return true;
}

Frame* Frames::Add(const BlockKey& key, size_t size, Need need, Clock::time_point now,
                   const std::function<bool(const BlockKey&)>& is_awaited) {
  assert(!index_.contains(key));
  const auto may_go = [&](const Frame& frame) { return frame.pins == 0 && !is_awaited(frame.key); };
  // The processor's cache still has the one that was spent last.
  const auto spent = std::find_if(spent_.rbegin(), spent_.rend(), may_go);
  if (free_.empty() && spent != spent_.rend()) Evict(spent_, std::prev(spent.base()));
  if (free_.empty() && untouched_ > 0) {
    --untouched_;
    free_.push_back({.bytes = memory_ + untouched_ * kBlockSize});
  }
  if (free_.empty()) {
    const bool may_take_ahead =
        need == Need::kReader || (!ahead_.empty() && now - ahead_.front().settled > kAheadLifetime);
    if (!Evict(used_, std::ranges::find_if(used_, may_go)) &&
        !(may_take_ahead && Evict(ahead_, std::ranges::find_if(ahead_, may_go)))) {
      return nullptr;
    }
  }
  const auto frame = std::prev(free_.end());
  index_.emplace(key, frame);
  frame->key = key;
  frame->size = size;
  frame->filled = frame->read = 0;
  frame->is_cancelled = false;
  Move(frame, Frame::Place::kBusy);
  return &*frame;
}

void Frames::Settle(Frame& frame, Clock::time_point now) {
  const auto it = index_.find(frame.key)->second;
  frame.settled = now;
  if (frame.filled == frame.size) {
    Move(it, frame.read == 0           ? Frame::Place::kAhead
             : frame.read < frame.size ? Frame::Place::kUsed
                                       : Frame::Place::kSpent);
    return;
  }
  if (frame.pins > 0) {
    frame.is_cancelled = true;
    return;
  }
  index_.erase(frame.key);
  Move(it, Frame::Place::kFree);
}

void Frames::Unpin(Frame& frame, size_t count) {
  --frame.pins;
  frame.read += count;
  const auto it = index_.find(frame.key)->second;
  if (frame.place != Frame::Place::kBusy) {
    Move(it, frame.read < frame.size ? Frame::Place::kUsed : Frame::Place::kSpent);
  } else if (frame.is_cancelled && frame.pins == 0) {
    index_.erase(frame.key);
    Move(it, Frame::Place::kFree);
  }
}

size_t Frames::used() const { return (index_.size()) * kBlockSize; }

size_t Frames::busy() const { return busy_.size() * kBlockSize; }

namespace {

// All windows together: the rest is for what is being fetched and what was read and may be again.
constexpr uint64_t WindowsOf(size_t memory) { return memory / 8 * 3; }

// The end of an object, where the directory of an archive is, is fetched from this block on.
constexpr uint64_t TailOf(uint64_t size) {
  return (size - std::min(size, kFetchedTail)) / kBlockSize;
}

constexpr size_t kMaxPrefetches = 20'000;

}  // namespace

Scheduler::Scheduler(size_t memory, size_t most_fetches)
    : most_fetches_(most_fetches), frames_(memory), read_ahead_(WindowsOf(frames_.capacity())) {}

uint32_t Scheduler::AddObject(uint64_t size, std::span<const std::byte> head,
                              Clock::time_point now) {
  const auto object = static_cast<uint32_t>(sizes_.size());
  sizes_.push_back(size);
  read_ahead_.AddObject(size);
  for (uint64_t block = 0; block < BlockCount(size); ++block) {
    const size_t length = BlockLength(size, block);
    if (head.size() < length) break;
    Frame* frame = frames_.Add({object, block}, length, Frames::Need::kAhead, now,
                               [&](const BlockKey& key) { return IsAwaited(key); });
    if (frame == nullptr) break;
    std::memcpy(frame->bytes, head.data(), length);
    frame->filled = length;
    frames_.Settle(*frame, now);
    head = head.subspan(length);
  }
  return object;
}

void Scheduler::Prefetch(uint32_t object, std::span<const ByteRange> ranges) {
  std::vector<ByteRange> sorted(ranges.begin(), ranges.end());
  std::ranges::sort(sorted, {}, &ByteRange::offset);
  uint64_t begin = 0;
  uint64_t end = 0;  // Of the blocks that are to be asked for.
  const auto add = [&] {
    if (begin < end && prefetches_.size() < kMaxPrefetches)
      prefetches_.push_back({object, begin, end});
  };
  for (const ByteRange& range : sorted) {
    if (range.length == 0) continue;
    const uint64_t behind = BlockCount(range.offset + range.length);
    uint64_t first = range.offset / kBlockSize;
    if (read_ahead_.IsOpening(object) && behind == BlockCount(sizes_[object])) {
      first = std::min(first, TailOf(sizes_[object]));
    }
    if (first > end || begin == end) {
      add();
      begin = first;
    }
    end = std::max(end, behind);
  }
  add();
}

ReadAhead::StreamId Scheduler::RecordRead(uint32_t object, ByteRange read, Clock::time_point now) {
  return read_ahead_.RecordRead(object, read, now);
}

Frame* Scheduler::Find(const BlockKey& key, size_t needed) {
  Frame* frame = frames_.Find(key);
  return frame != nullptr && frame->filled >= needed ? frame : nullptr;
}

void Scheduler::Wait(Waiter& waiter) { waiters_.push_back(&waiter); }

void Scheduler::Leave(Waiter& waiter) { waiters_.remove(&waiter); }

bool Scheduler::IsAwaited(const BlockKey& key) const {
  return std::ranges::any_of(waiters_, [&](const Waiter* waiter) { return waiter->key == key; });
}

// Whether a reader waits for a part of it, reads in its stream, or has announced it by Prefetch.
bool Scheduler::IsWanted(const RangeFetch& fetch, Clock::time_point now) const {
  if (fetch.stream == 0 || read_ahead_.IsLive(fetch.stream, now)) return true;
  return std::ranges::any_of(waiters_, [&](const Waiter* waiter) {
    return waiter->stream == fetch.stream ||
           (waiter->key.object == fetch.object && waiter->end_block > fetch.first_block &&
            waiter->key.block < fetch.first_block + fetch.frames.size());
  });
}

uint64_t Scheduler::PresentUpTo(uint32_t object, uint64_t offset) {
  while (offset < sizes_[object] && frames_.Find({object, offset / kBlockSize}) != nullptr) {
    offset = (offset / kBlockSize + 1) * kBlockSize;
  }
  return std::min(offset, sizes_[object]);
}

// Fetches the blocks from `block` to `end_block` that are neither cached nor being fetched, as far
// as memory is free. Returns null if these are none.
std::unique_ptr<RangeFetch> Scheduler::Begin(uint32_t object, uint64_t block, uint64_t end_block,
                                             Frames::Need need, Clock::time_point now) {
  auto fetch = std::make_unique<RangeFetch>();
  fetch->object = object;
  fetch->first_block = block;
  fetch->is_ahead = need == Frames::Need::kAhead;
  for (; block < end_block; ++block) {
    if (frames_.Find({object, block}) != nullptr) break;
    Frame* frame = frames_.Add({object, block}, BlockLength(sizes_[object], block), need, now,
                               [&](const BlockKey& key) { return IsAwaited(key); });
    if (frame == nullptr) break;
    fetch->frames.push_back(frame);
  }
  if (fetch->frames.empty()) return nullptr;
  fetches_.push_back(fetch.get());
  if (fetch->is_ahead) ++ahead_count_;
  return fetch;
}

std::unique_ptr<RangeFetch> Scheduler::TakeFor(const Waiter& waiter, Clock::time_point now) {
  const auto& [object, block] = waiter.key;
  if (waiter.error != nullptr || frames_.Find(waiter.key) != nullptr) return nullptr;
  const uint64_t size = sizes_[object];
  uint64_t window = BlockCount(std::min(read_ahead_.EndOf(waiter.stream, now), size));
  uint64_t first = block;
  if (!read_ahead_.IsOpening(object)) {
    window = std::min(window, block + read_ahead_.RangeLength(waiter.stream, now) / kBlockSize);
  } else if (waiter.end_block == BlockCount(size)) {
    const uint64_t tail = TailOf(size);
    while (first > tail && frames_.Find({object, first - 1}) == nullptr) --first;
  }
  // All that this reader waits for is one range, unless it is very long.
  constexpr uint64_t kMostAtOnce = (uint64_t{8} << 20U) / kBlockSize;
  const uint64_t end = std::min(std::max(waiter.end_block, window), block + kMostAtOnce);
  auto fetch = Begin(object, first, end, Frames::Need::kReader, now);
  if (fetch == nullptr) return nullptr;
  fetch->stream = waiter.stream;
  read_ahead_.RecordFetched(waiter.stream,
                            (fetch->first_block + fetch->frames.size()) * kBlockSize);
  return fetch;
}

std::unique_ptr<RangeFetch> Scheduler::TakePrefetch(Clock::time_point now) {
  while (!prefetches_.empty()) {
    PrefetchRange& next = prefetches_.front();
    while (next.block < next.end_block && frames_.Find({next.object, next.block}) != nullptr) {
      ++next.block;
    }
    if (next.block == next.end_block) {
      prefetches_.pop_front();
      continue;
    }
    auto fetch = Begin(next.object, next.block, next.end_block, Frames::Need::kAhead, now);
    if (fetch != nullptr) next.block += fetch->frames.size();
    return fetch;
  }
  return nullptr;
}

std::unique_ptr<RangeFetch> Scheduler::TakeAhead(Clock::time_point now) {
  const auto wish = read_ahead_.Next(
      now, [&](uint32_t object, uint64_t offset) { return PresentUpTo(object, offset); });
  if (!wish) return nullptr;
  const uint64_t end = BlockCount(wish->range.offset + wish->range.length);
  auto fetch = Begin(wish->object, wish->range.offset / kBlockSize, end, Frames::Need::kAhead, now);
  if (fetch == nullptr) return nullptr;
  fetch->stream = wish->stream;
  read_ahead_.RecordFetched(wish->stream, (fetch->first_block + fetch->frames.size()) * kBlockSize);
  return fetch;
}

// Stops a read-ahead fetch in favour of a waiting reader.
void Scheduler::MakeWay(Clock::time_point now) {
  const auto found = std::ranges::find_if(fetches_, [&](const RangeFetch* fetch) {
    return !fetch->stop.stop_requested() && !IsWanted(*fetch, now);
  });
  if (found != fetches_.end()) (*found)->stop.request_stop();
}

std::unique_ptr<RangeFetch> Scheduler::Take(Clock::time_point now) {
  for (const Waiter* waiter : waiters_) {
    if (fetches_.size() >= most_fetches_) {
      MakeWay(now);
      return nullptr;
    }
    if (auto fetch = TakeFor(*waiter, now)) return fetch;
  }
  if (fetches_.size() >= most_fetches_ || ahead_count_ + 1 >= most_fetches_) return nullptr;
  if (auto fetch = TakePrefetch(now)) return fetch;
  return TakeAhead(now);
}

bool Scheduler::Arrived(RangeFetch& fetch, Frame& frame, size_t filled, Clock::time_point now) {
  const bool is_awaited = std::ranges::any_of(waiters_, [&](const Waiter* waiter) {
    return waiter->key == frame.key && filled >= waiter->needed && frame.filled < waiter->needed;
  });
  frame.filled = filled;
  if (!is_awaited && !IsWanted(fetch, now)) fetch.stop.request_stop();
  return is_awaited;
}

void Scheduler::Finish(std::unique_ptr<RangeFetch> fetch, const std::exception_ptr& error,
                       Clock::time_point now) {
  fetches_.remove(fetch.get());
  if (fetch->is_ahead) --ahead_count_;
  const bool is_stopped = fetch->stop.stop_requested();
  if (error != nullptr && !is_stopped) {
    read_ahead_.RecordFailed(fetch->stream);
    for (const Frame* frame : fetch->frames) {
      for (Waiter* waiter : waiters_) {
        if (waiter->key == frame->key && frame->filled < waiter->needed) waiter->error = error;
      }
    }
  }
  for (Frame* frame : fetch->frames) frames_.Settle(*frame, now);
}

void Scheduler::StopAll() {
  for (RangeFetch* fetch : fetches_) fetch->stop.request_stop();
}

}  // namespace ckptfs
