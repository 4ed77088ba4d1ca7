#include "parser/layer/range_cache/frames.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <iterator>
#include <new>

namespace ckptfs {
namespace {

// How long ahead blocks are kept while none of them is read.
constexpr std::chrono::seconds kAheadLifetime{10};

// Beyond this memory, in bytes, blocks that are read to open objects are evicted for others.
constexpr size_t kMemoryOfOpening = size_t{256} << 20U;

// Frames that are released while the lock of the cache is held: some milliseconds.
constexpr size_t kMostReleased = 2048;

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

// Whether the oldest ahead frame may be evicted for read-ahead: no such frame is read, or most of
// the memory is full of them and twice as much was read meanwhile, since a program that looked at
// many files does not read on where it was expected to.
bool Frames::HasStaleAhead(Clock::time_point now) const {
  if (ahead_.empty()) return false;
  const Frame& oldest = ahead_.front();
  return now - std::max(oldest.settled, hit_) > kAheadLifetime ||
         (ahead() > capacity_ / 4 * 3 && read_ - oldest.read_before > 2 * capacity_);
}

Frame* Frames::Add(const BlockKey& key, size_t size, Need need, Clock::time_point now,
                   const std::function<bool(const BlockKey&)>& is_awaited) {
  assert(!index_.contains(key));
  const auto may_go = [&](const Frame& frame) { return frame.pins == 0 && !is_awaited(frame.key); };
  // The processor's cache still has the one that was spent last.
  const auto spent = std::find_if(spent_.rbegin(), spent_.rend(), may_go);
  if (free_.empty() && spent != spent_.rend()) Evict(spent_, std::prev(spent.base()));
  if (free_.empty() && need == Need::kOpening &&
      capacity_ - untouched_ * kBlockSize >= kMemoryOfOpening) {
    Evict(used_, std::ranges::find_if(used_, may_go));
  }
  if (free_.empty() && untouched_ > 0) {
    --untouched_;
    free_.push_back({.bytes = memory_ + untouched_ * kBlockSize});
  }
  if (free_.empty()) {
    const bool may_take_ahead = need != Need::kAhead || HasStaleAhead(now);
    if (!Evict(used_, std::ranges::find_if(used_, may_go)) &&
        !(may_take_ahead && Evict(ahead_, std::ranges::find_if(ahead_, may_go)))) {
      return nullptr;
    }
  }
  const auto frame = std::prev(free_.end());
  index_.emplace(key, frame);
  frame->key = key;
  frame->size = size;
  frame->begin = frame->filled = frame->read = 0;
  frame->is_cancelled = frame->is_planned = false;
  touched_ += frame->is_touched ? 0 : 1;
  frame->is_touched = true;
  Move(frame, Frame::Place::kBusy);
  return &*frame;
}

void Frames::Settle(Frame& frame, bool is_on_disk, Clock::time_point now) {
  const auto it = index_.find(frame.key)->second;
  frame.settled = now;
  frame.read_before = read_;
  if (frame.filled == frame.size) {
    Move(it, is_on_disk || frame.read >= frame.size - frame.begin ? Frame::Place::kSpent
             : frame.read == 0                                    ? Frame::Place::kAhead
                                                                  : Frame::Place::kUsed);
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
  read_ += count;
  const auto it = index_.find(frame.key)->second;
  if (frame.place != Frame::Place::kBusy) {
    Move(it, frame.read < frame.size - frame.begin ? Frame::Place::kUsed : Frame::Place::kSpent);
  } else if (frame.is_cancelled && frame.pins == 0) {
    index_.erase(frame.key);
    Move(it, Frame::Place::kFree);
  }
}

void Frames::Release(bool all) {
  const auto evict_all = [&](List& list) {
    for (auto frame = list.begin(); frame != list.end();) {
      const auto next = std::next(frame);
      if (frame->pins == 0) Evict(list, frame);
      frame = next;
    }
  };
  evict_all(spent_);
  if (all) {
    evict_all(used_);
    evict_all(ahead_);
  }
  // On ARM, a page may be larger than a block: its neighbour would lose its bytes.
  static const bool is_in_pages = kBlockSize % static_cast<size_t>(::sysconf(_SC_PAGESIZE)) == 0;
  size_t count = 0;
  for (Frame& frame : free_) {
    if (!frame.is_touched) continue;
    if (is_in_pages) ::madvise(frame.bytes, kBlockSize, MADV_DONTNEED);
    frame.is_touched = false;
    --touched_;
    if (++count == kMostReleased) return;
  }
}

}  // namespace ckptfs
