// The threads of the cache, which fetch ranges.

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <new>
#include <utility>

#include "parser/base/error.h"
#include "parser/io/remote_object.h"
#include "parser/layer/range_cache.h"

namespace ckptfs {
namespace {

using std::chrono::milliseconds;

// How often idle threads look whether memory is unused.
constexpr milliseconds kIdleCheck{5000};

// How long idle connections to a server with few workers are kept.
constexpr milliseconds kScarceLifetime{1000};

// How long a fetch waits for others, which are for readers, to get a connection first.
constexpr milliseconds kHandicap{2};

}  // namespace

// Delivers fetched bytes into the frames of a fetch.
class RangeCache::FrameDelivery final : public Delivery {
 public:
  FrameDelivery(RangeCache& cache, RangeFetch& fetch, size_t begin, size_t end)
      : cache_(cache),
        fetch_(fetch),
        end_(end),
        written_{begin, fetch.frames[begin]->begin},
        announced_(written_) {}

  void Connected() override {
    const MutexLock lock(cache_.mutex_);
    cache_.RecordConnected(fetch_);
  }

  void Answered() override {
    const MutexLock lock(cache_.mutex_);
    cache_.RecordConnected(fetch_);
    cache_.scheduler_.Receive(fetch_, 0, Clock::now());
  }

  std::span<std::byte> room() override {
    if (written_.frame == end_) return {};
    const Frame& frame = *fetch_.frames[written_.frame];
    return {frame.bytes + written_.filled, frame.size - written_.filled};
  }

  void Written(size_t count) override { Advance(written_, count); }

  // Takes the lock and wakes readers once, whatever number of calls of Written there were.
  void Flush() override {
    if (announced_ == written_) return;
    bool is_awaited = false;
    {
      const MutexLock lock(cache_.mutex_);
      const auto now = Clock::now();
      cache_.RecordConnected(fetch_);
      cache_.ResetSilence(now);
      size_t count = 0;
      while (announced_ != written_) {
        Frame& frame = *fetch_.frames[announced_.frame];
        const bool is_full = announced_.frame < written_.frame;
        const size_t filled = is_full ? frame.size : written_.filled;
        const size_t part = filled - announced_.filled;
        count += part;
        is_awaited |= cache_.scheduler_.Arrived(fetch_, frame, filled, now);
        Advance(announced_, part);
      }
      cache_.stats_.fetched += count;
      cache_.scheduler_.Receive(fetch_, count, now);
    }
    if (is_awaited) cache_.arrived_.notify_all();
  }

  // Returns the index after the last full frame.
  size_t whole_end() const { return written_.frame; }

 private:
  // In the frames of the fetch.
  struct Position {
    size_t frame = 0;
    size_t filled = 0;
    friend bool operator==(const Position&, const Position&) = default;
  };

  // Moves on by `count` bytes of one frame.
  void Advance(Position& position, size_t count) const {
    position.filled += count;
    if (position.filled == fetch_.frames[position.frame]->size) position = {position.frame + 1, 0};
  }

  RangeCache& cache_;
  RangeFetch& fetch_;
  const size_t end_;
  Position written_;
  Position announced_;  // Up to where readers may read.
};

void RangeCache::RunFetches() {
  MutexLock lock(mutex_);
  while (true) {
    while (!is_stopped_ && fetches_.empty()) AwaitFetch(lock);
    if (is_stopped_) return;
    std::unique_ptr<RangeFetch> fetch = std::move(fetches_.front());
    fetches_.pop_front();
    --idle_threads_;
    if (!fetch->is_awaited) AwaitConnections(lock);
    scheduler_.Start(*fetch, Clock::now());
    const Object object = objects_[fetch->object];
    lock.unlock();
    std::optional<Error> error;
    try {
      RunFetch(object, *fetch);
    } catch (const Error& e) {
      error = e;
    } catch (const std::bad_alloc&) {
      error = Error(ENOMEM, ErrnoText(ENOMEM));
    } catch (const std::exception& e) {
      error = Error(EIO, e.what());
    }
    lock.lock();
    ++idle_threads_;
    RecordConnected(*fetch);
    ended_ = Clock::now();
    scheduler_.Finish(std::move(fetch), error, ended_);
    Dispatch();
    arrived_.notify_all();
  }
}

// Waits until there may be a fetch. Returns meanwhile what has not been used for a while.
void RangeCache::AwaitFetch(MutexLock& lock) {
  const bool is_scarce = scheduler_.HasScarceConnections();
  if (!is_scarce && !scheduler_.HoldsMemory()) return taken_.wait(lock);
  const auto most = is_scarce ? kScarceLifetime : kIdleCheck;
  if (taken_.wait_for(lock, most) != std::cv_status::timeout) return;
  scheduler_.ReleaseIdle(Clock::now());
  if (scheduler_.HasScarceConnections() && Clock::now() - ended_ >= kScarceLifetime) CloseIdle();
}

// Unlocks the mutex while it closes them.
void RangeCache::CloseIdle() {
  scheduler_.ForgetIdle();
  for (size_t i = 0; i < objects_.size(); ++i) {  // There may be more meanwhile.
    const RemoteObjectPtr object = objects_[i].remote;
    mutex_.unlock();
    object->CloseIdle();
    mutex_.lock();
  }
}

void RangeCache::RecordConnected(RangeFetch& fetch) {
  if (!fetch.is_awaited || std::exchange(fetch.is_connected, true)) return;
  if (--unconnected_ == 0) connected_.notify_all();
}

// Lets fetches for readers go first: they get the connections that were used last, on which the
// first bytes arrive one or two round trips sooner than on new ones.
void RangeCache::AwaitConnections(MutexLock& lock) {
  const auto latest = Clock::now() + kHandicap;
  while (unconnected_ > 0 && !is_stopped_) {
    if (connected_.wait_until(lock, latest) == std::cv_status::timeout) return;
  }
}

// Reads the blocks that the disk cache has from there, and fetches the others.
void RangeCache::RunFetch(const Object& object, RangeFetch& fetch) {
  const size_t count = fetch.frames.size();
  // A head is on its way already, and is soon read from memory.
  if (object.disk == nullptr || fetch.is_head) return FetchRun(object, fetch, 0, count);
  std::vector<std::span<std::byte>> blocks;
  blocks.reserve(count);
  for (const Frame* frame : fetch.frames) blocks.emplace_back(frame->bytes, frame->size);
  const std::vector<bool> is_cached = object.disk->Read(fetch.first_block, blocks);
  {
    const MutexLock lock(mutex_);
    for (size_t i = 0; i < count; ++i) {
      if (!is_cached[i]) continue;
      ResetSilence(Clock::now());
      scheduler_.Arrived(fetch, *fetch.frames[i], blocks[i].size(), Clock::now());
      stats_.from_disk += blocks[i].size();
    }
  }
  arrived_.notify_all();
  for (size_t begin = 0; begin < count;) {
    size_t end = begin;
    while (end < count && !is_cached[end]) ++end;
    if (begin < end) FetchRun(object, fetch, begin, end);
    begin = std::max(end, begin + 1);
  }
}

// Fetches the frames from `begin` to `end`, and writes the full ones to the disk cache, also if the
// fetch fails.
void RangeCache::FetchRun(const Object& object, RangeFetch& fetch, size_t begin, size_t end) {
  FrameDelivery delivery(*this, fetch, begin, end);
  const uint64_t offset = (fetch.first_block + begin) * kBlockSize + fetch.frames[begin]->begin;
  uint64_t length = 0;
  for (size_t i = begin; i < end; ++i) length += fetch.frames[i]->size - fetch.frames[i]->begin;
  std::exception_ptr error;
  try {
    object.remote->Fetch(offset, length, delivery, fetch.stop.get_token());
  } catch (...) {
    error = std::current_exception();
  }
  delivery.Flush();
  if (object.disk != nullptr && !fetch.is_head && fetch.frames[begin]->begin == 0) {
    std::vector<std::span<const std::byte>> whole;
    for (size_t i = begin; i < delivery.whole_end(); ++i) {
      whole.emplace_back(fetch.frames[i]->bytes, fetch.frames[i]->size);
    }
    object.disk->Write(fetch.first_block + begin, whole);
  }
  if (error != nullptr) std::rethrow_exception(error);
}

}  // namespace ckptfs
