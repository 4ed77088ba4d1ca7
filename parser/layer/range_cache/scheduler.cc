#include "parser/layer/range_cache/scheduler.h"

#include <algorithm>
#include <utility>

#include "parser/io/prefetch.h"
#include "parser/io/remote_object.h"

namespace ckptfs {
namespace {

// All windows together, and all blocks that no reader has read yet: the rest is for what readers
// wait for, and for what was read and may be again.
constexpr uint64_t WindowsOf(size_t memory) { return memory / 8 * 3; }
constexpr uint64_t UnreadOf(size_t memory) { return memory / 4 * 3; }

// Reads end for so long before memory is returned, and before all of it is.
constexpr std::chrono::seconds kShortIdle{5};
constexpr std::chrono::seconds kLongIdle{60};

// The end of an object, where the directory of an archive is, is fetched from this block on.
constexpr uint64_t TailOf(uint64_t size) {
  return (size - std::min(size, kFetchedTail)) / kBlockSize;
}

// Bytes at the end of an object in which an archive has its end record: what the first packets of a
// new connection carry.
constexpr uint64_t kEndRecord = uint64_t{12} << 10U;

constexpr size_t kMaxPrefetches = 20'000;

}  // namespace

Scheduler::Scheduler(size_t memory, size_t most_fetches, uint64_t disk)
    : frames_(memory),
      link_(most_fetches),
      read_ahead_(WindowsOf(frames_.capacity())),
      disk_(disk) {}

uint32_t Scheduler::AddObject(uint64_t size) {
  const auto object = static_cast<uint32_t>(sizes_.size());
  sizes_.push_back(size);
  read_ahead_.AddObject(size);
  return object;
}

std::unique_ptr<RangeFetch> Scheduler::TakeHead(uint32_t object, const RemoteObject::Head& head,
                                                Clock::time_point now) {
  link_.RecordRoundTrip(head.round_trip);
  link_.RecordOpened(head.latency);
  const uint64_t end =
      head.length == sizes_[object] ? BlockCount(head.length) : head.length / kBlockSize;
  auto fetch = Begin(object, 0, end, Frames::Need::kOpening, now);
  if (fetch == nullptr) return nullptr;
  fetch->is_head = true;
  fetch->is_answered = true;  // Before it is taken.
  return fetch;
}

void Scheduler::Prefetch(uint32_t object, std::span<const ByteRange> ranges) {
  std::vector<ByteRange> sorted(ranges.begin(), ranges.end());
  std::ranges::sort(sorted, {}, &ByteRange::offset);
  const size_t count = prefetches_.size();
  uint64_t begin = 0;
  uint64_t end = 0;  // Of the blocks that are to be asked for.
  const auto add = [&] {
    if (begin < end && prefetches_.size() < kMaxPrefetches)
      prefetches_.push_back({object, begin, end});
  };
  for (const ByteRange& range : sorted) {
    if (range.length == 0) continue;
    read_ahead_.Announce(object, range);
    const uint64_t behind = BlockCount(range.offset + range.length);
    uint64_t first = range.offset / kBlockSize;
    if (read_ahead_.IsOpening(object) && behind == BlockCount(sizes_[object]) &&
        frames_.Find({object, behind - 1}) == nullptr) {
      const uint64_t tail = TailOf(sizes_[object]);
      // The end is needed first; all of the tail, if a directory is long.
      for (uint64_t block = behind; link_.is_long() && block-- > tail;) {
        prefetches_.push_back({object, block, block + 1});
      }
      first = std::min(first, tail);
    }
    if (first > end || begin == end) {
      add();
      begin = first;
    }
    end = std::max(end, behind);
  }
  add();
  if (read_ahead_.IsOpening(object) && link_.is_long()) Divide(count);
}

// Divides the prefetches behind the first `count` ones equally among all connections: most of these
// are new, TCP starts slowly on each, and one that gets a second piece is idle for a round trip.
void Scheduler::Divide(size_t count) {
  uint64_t blocks = 0;
  for (size_t i = count; i < prefetches_.size(); ++i) {
    blocks += prefetches_[i].end_block - prefetches_[i].block;
  }
  const uint64_t connections = std::min(link_.fetches(), kUsualConnections);
  for (size_t i = count; i < prefetches_.size(); ++i) {
    PrefetchRange& range = prefetches_[i];
    const uint64_t part = connections * (range.end_block - range.block);
    range.pieces = std::max((part + blocks / 2) / blocks, uint64_t{1});
  }
}

ReadAhead::StreamId Scheduler::RecordRead(uint32_t object, ByteRange read, Clock::time_point now) {
  const Frame* frame = frames_.Find({object, read.offset / kBlockSize});
  const bool is_fetched =
      frame != nullptr && (frame->is_planned || frame->place != Frame::Place::kBusy);
  if (is_fetched) frames_.RecordHit(now);
  last_read_ = now;
  return read_ahead_.RecordRead(object, read, is_fetched, now);
}

Frame* Scheduler::Find(const BlockKey& key, size_t begin, size_t end) {
  Frame* frame = frames_.Find(key);
  return frame != nullptr && frame->begin <= begin && frame->filled >= end ? frame : nullptr;
}

void Scheduler::Wait(Waiter& waiter) { waiters_.push_back(&waiter); }

void Scheduler::Leave(Waiter& waiter) { waiters_.remove(&waiter); }

bool Scheduler::IsAwaited(const BlockKey& key) const {
  return std::ranges::any_of(waiters_, [&](const Waiter* waiter) { return waiter->key == key; });
}

// Whether a block is cached or being fetched, from `begin` on. A frame without the bytes there
// counts as long as it cannot be dropped.
bool Scheduler::IsPresent(const BlockKey& key, size_t begin) {
  const Frame* frame = frames_.Find(key);
  return frame != nullptr && (frame->begin <= begin || !Frames::MayDrop(*frame));
}

// Whether a reader waits for a part of it, reads in its stream, or has announced it by Prefetch.
bool Scheduler::IsWanted(const RangeFetch& fetch, Clock::time_point now) const {
  if (fetch.stream == 0 || read_ahead_.IsLive(fetch.stream, now) || HasWaiter(fetch)) return true;
  return std::ranges::any_of(waiters_,
                             [&](const Waiter* waiter) { return waiter->stream == fetch.stream; });
}

// Whether a reader waits for a part of it.
bool Scheduler::HasWaiter(const RangeFetch& fetch) const {
  return std::ranges::any_of(waiters_, [&](const Waiter* waiter) {
    return waiter->key.object == fetch.object && waiter->end_block > fetch.first_block &&
           waiter->key.block < fetch.first_block + fetch.frames.size();
  });
}

ByteRange Scheduler::RangeOf(const RangeFetch& fetch) const {
  const uint64_t begin = fetch.first_block * kBlockSize;
  const uint64_t end = (fetch.first_block + fetch.frames.size()) * kBlockSize;
  return {begin, std::min(end, sizes_[fetch.object]) - begin};
}

uint64_t Scheduler::PresentUpTo(uint32_t object, uint64_t offset) {
  while (offset < sizes_[object] && IsPresent({object, offset / kBlockSize})) {
    offset = (offset / kBlockSize + 1) * kBlockSize;
  }
  return std::min(offset, sizes_[object]);
}

uint64_t Scheduler::PresentDownTo(uint32_t object, uint64_t offset) {
  while (offset > 0 && IsPresent({object, (offset - 1) / kBlockSize})) {
    offset = (offset - 1) / kBlockSize * kBlockSize;
  }
  return offset;
}

// Returns the block behind the last one before `block` that is cached or being fetched, at least
// `least`.
uint64_t Scheduler::BehindPresent(uint32_t object, uint64_t block, uint64_t least) {
  while (block > least && !IsPresent({object, block - 1})) --block;
  return block;
}

// Fetches the blocks from `block` to `end_block` that are neither cached nor being fetched, as far
// as memory is free; the first one from `begin` on, unless it is cached from elsewhere on: then
// it is fetched whole. Returns null if nothing is to be fetched.
std::unique_ptr<RangeFetch> Scheduler::Begin(uint32_t object, uint64_t block, uint64_t end_block,
                                             Frames::Need need, Clock::time_point now,
                                             size_t begin) {
  auto fetch = std::make_unique<RangeFetch>();
  fetch->object = object;
  fetch->first_block = block;
  for (; block < end_block; ++block) {
    if (IsPresent({object, block}, begin)) break;
    if (Frame* partial = frames_.Find({object, block})) {
      frames_.Drop(*partial);
      begin = 0;
    }
    Frame* frame = frames_.Add({object, block}, BlockLength(sizes_[object], block), need, now,
                               [&](const BlockKey& key) { return IsAwaited(key); });
    if (frame == nullptr) break;
    frame->begin = frame->filled = std::exchange(begin, 0);
    fetch->frames.push_back(frame);
    fetch->awaited += frame->size - frame->begin;
  }
  if (fetch->frames.empty()) return nullptr;
  fetches_.push_back(fetch.get());
  in_flight_ += fetch->awaited;
  return fetch;
}

// The kernel reads ahead in several requests, which wait here in any order. Returns the waiter of
// the same stream that comes first, so that one range is for all of them.
const Waiter& Scheduler::FirstOfStream(const Waiter& waiter) {
  constexpr uint64_t kMostBefore = (uint64_t{2} << 20U) / kBlockSize;
  const Waiter* first = &waiter;
  for (const Waiter* other : waiters_) {
    if (other->stream == waiter.stream && other->key.object == waiter.key.object &&
        other->key.block < first->key.block && waiter.key.block - other->key.block <= kMostBefore &&
        !other->error && !IsPresent(other->key, other->begin)) {
      first = other;
    }
  }
  return *first;
}

std::unique_ptr<RangeFetch> Scheduler::TakeFor(const Waiter& waiter, Clock::time_point now) {
  const auto& [object, block] = waiter.key;
  const uint64_t size = sizes_[object];
  uint64_t window = BlockCount(std::min(read_ahead_.EndOf(waiter.stream, now), size));
  uint64_t first = block;
  size_t begin = 0;  // In the first block.
  if (!read_ahead_.IsOpening(object)) {
    window = std::min(window, block + read_ahead_.RangeLength(waiter.stream, now) / kBlockSize);
  } else if (waiter.end_block == BlockCount(size)) {
    // An archive ends with the place of its directory. On a long link it is fetched alone: it is
    // there a round trip sooner than the rest of the tail would be.
    const uint64_t last = size - std::min(size, kEndRecord);
    const bool is_record = link_.is_long() && block * kBlockSize + waiter.begin >= last;
    first = BehindPresent(object, first, is_record ? last / kBlockSize : TailOf(size));
    if (is_record && first == last / kBlockSize) begin = last % kBlockSize;
  }
  // All that this reader waits for is one range, unless it is very long.
  constexpr uint64_t kMostAtOnce = (uint64_t{8} << 20U) / kBlockSize;
  uint64_t end = std::min(std::max(waiter.end_block, window), block + kMostAtOnce);
  const auto behind =
      read_ahead_.NextBehind(waiter.stream, std::min(end * kBlockSize, size),
                             frames_.ahead() + frames_.busy(), UnreadOf(frames_.capacity()), now,
                             [&](uint32_t o, uint64_t offset) { return PresentUpTo(o, offset); });
  if (behind) end = std::max(end, BlockCount(behind->offset + behind->length));
  const auto need = read_ahead_.IsOpening(object) ? Frames::Need::kOpening : Frames::Need::kReader;
  // The bytes of a block before a scattered read would only delay it. Whole blocks go to a disk.
  if (end <= block + 2 && read_ahead_.IsScattered(waiter.stream)) begin = waiter.begin;
  auto fetch = Begin(object, first, end, need, now, disk_ == 0 ? begin : 0);
  if (fetch == nullptr) return nullptr;
  fetch->is_awaited = true;
  fetch->stream = waiter.stream;
  const ByteRange range = RangeOf(*fetch);
  read_ahead_.RecordFetched(waiter.stream, range);
  if (behind && range.offset + range.length > behind->offset) {
    read_ahead_.RecordPlanned(object,
                              {behind->offset, range.offset + range.length - behind->offset});
  }
  return fetch;
}

std::unique_ptr<RangeFetch> Scheduler::TakePrefetch(Clock::time_point now) {
  while (!prefetches_.empty()) {
    PrefetchRange& next = prefetches_.front();
    while (next.block < next.end_block && IsPresent({next.object, next.block})) {
      // The rest of this block is fetched once the fetch of its end has ended.
      if (frames_.Find({next.object, next.block})->begin > 0) return nullptr;
      ++next.block;
    }
    if (next.block == next.end_block) {
      prefetches_.pop_front();
      continue;
    }
    const uint64_t end = next.block + (next.end_block - next.block + next.pieces - 1) / next.pieces;
    auto fetch = Begin(next.object, next.block, end, Frames::Need::kAhead, now);
    if (fetch != nullptr) {
      next.block += fetch->frames.size();
      next.pieces = std::max(next.pieces - 1, uint64_t{1});
    }
    return fetch;
  }
  return nullptr;
}

std::unique_ptr<RangeFetch> Scheduler::TakeAhead(Clock::time_point now) {
  const auto wish = read_ahead_.Next(
      now, [&](uint32_t object, uint64_t offset) { return PresentUpTo(object, offset); },
      [&](uint32_t object, uint64_t offset) { return PresentDownTo(object, offset); });
  if (!wish) return nullptr;
  const uint64_t end = BlockCount(wish->range.offset + wish->range.length);
  uint64_t first = wish->range.offset / kBlockSize;
  if (wish->is_backward) first = BehindPresent(wish->object, end, first);
  auto fetch = Begin(wish->object, first, end, Frames::Need::kAhead, now);
  if (fetch == nullptr) return nullptr;
  fetch->stream = wish->stream;
  for (Frame* frame : fetch->frames) frame->is_planned = true;
  // If memory was short, the end of a range that is read backward is still wanted.
  if (!wish->is_backward) read_ahead_.RecordFetched(wish->stream, RangeOf(*fetch));
  return fetch;
}

std::unique_ptr<RangeFetch> Scheduler::TakePlanned(Clock::time_point now) {
  const uint64_t unread = frames_.ahead() + frames_.busy();
  const uint64_t most = UnreadOf(frames_.capacity());
  // Beyond the memory, the blocks go to the disk only.
  const bool is_to_disk = unread >= most && to_disk_ < disk_;
  const auto wish = read_ahead_.NextPlanned(
      is_to_disk ? 0 : unread, most, now,
      [&](uint32_t object, uint64_t offset) { return PresentUpTo(object, offset); });
  if (!wish) return nullptr;
  const uint64_t first = wish->range.offset / kBlockSize;
  const uint64_t end = BlockCount(wish->range.offset + wish->range.length);
  auto fetch = Begin(wish->object, first, end, Frames::Need::kAhead, now);
  if (fetch == nullptr) return nullptr;
  fetch->stream = wish->stream;
  for (Frame* frame : fetch->frames) frame->is_planned = true;
  fetch->is_to_disk = is_to_disk;
  const uint64_t fetched_to = (first + fetch->frames.size()) * kBlockSize;
  if (is_to_disk) to_disk_ += fetched_to - wish->range.offset;
  read_ahead_.RecordPlanned(wish->object, {wish->range.offset, fetched_to - wish->range.offset});
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
  StopUnanswered(now);
  auto fetch = TakeNext(now);
  if (fetch == nullptr) {
    MoveUnanswered(false, now);
  } else if (idle_ > 0) {
    --idle_;
  }
  return fetch;
}

std::unique_ptr<RangeFetch> Scheduler::TakeNext(Clock::time_point now) {
  if (fetches_.size() < link_.fetches()) {
    if (auto fetch = TakeRepeated(now)) return fetch;
  }
  read_ahead_.SetInFlight(link_.in_flight(), in_flight_, link_.fetches(), link_.longest_range());
  for (const Waiter* waiter : waiters_) {
    if (waiter->error || IsPresent(waiter->key, waiter->begin)) continue;
    if (fetches_.size() >= link_.fetches()) {
      link_.RecordQueued(now);
      MakeWay(now);
      return nullptr;
    }
    if (auto fetch = TakeFor(FirstOfStream(*waiter), now)) return fetch;
  }
  return MoveUnanswered(true, now) ? nullptr : TakeAnnounced(now);
}

// Takes a range that no reader waits for.
std::unique_ptr<RangeFetch> Scheduler::TakeAnnounced(Clock::time_point now) {
  if (fetches_.size() >= std::min(link_.fetches(), kUsualConnections)) return nullptr;
  if (in_flight_ >= link_.in_flight()) return nullptr;
  if (auto fetch = TakePrefetch(now)) return fetch;
  if (auto fetch = TakeAhead(now)) return fetch;
  return TakePlanned(now);
}

void Scheduler::Receive(RangeFetch& fetch, size_t count, Clock::time_point now) {
  if (!fetch.is_answered) {
    fetch.is_answered = true;
    answered_ = now;
    link_.RecordAnswer(now - fetch.started, now);
    link_.RecordServed(static_cast<size_t>(
        std::ranges::count_if(fetches_, [](const RangeFetch* f) { return f->is_answered; })));
  }
  link_.RecordArrived(count, now);
}

bool Scheduler::Arrived(RangeFetch& fetch, Frame& frame, size_t filled, Clock::time_point now) {
  const uint64_t arrived = std::min<uint64_t>(filled - frame.filled, fetch.awaited);
  fetch.awaited -= arrived;
  in_flight_ -= arrived;
  const bool is_awaited = std::ranges::any_of(waiters_, [&](const Waiter* waiter) {
    return waiter->key == frame.key && filled >= waiter->needed && frame.filled < waiter->needed;
  });
  frame.filled = filled;
  if (!is_awaited && !IsWanted(fetch, now)) fetch.stop.request_stop();
  return is_awaited;
}

void Scheduler::Finish(std::unique_ptr<RangeFetch> fetch, const std::optional<Error>& error,
                       Clock::time_point now) {
  fetches_.remove(fetch.get());
  in_flight_ -= fetch->awaited;
  const bool is_stopped = fetch->stop.stop_requested();
  if (!error && !is_stopped && fetch->is_answered) ++idle_;
  if (error && !is_stopped) {
    read_ahead_.RecordFailed(fetch->stream);
    for (const Frame* frame : fetch->frames) {
      for (Waiter* waiter : waiters_) {
        if (waiter->key == frame->key && frame->filled < waiter->needed) waiter->error = error;
      }
    }
  }
  if (fetch->is_repeated && IsWanted(*fetch, now)) AddRepeated(*fetch);
  for (Frame* frame : fetch->frames) frames_.Settle(*frame, fetch->is_to_disk, now);
}

void Scheduler::ReleaseIdle(Clock::time_point now) {
  if (now - last_read_ > kShortIdle && waiters_.empty())
    frames_.Release(now - last_read_ > kLongIdle);
}

void Scheduler::StopAll() {
  for (RangeFetch* fetch : fetches_) fetch->stop.request_stop();
}

}  // namespace ckptfs
