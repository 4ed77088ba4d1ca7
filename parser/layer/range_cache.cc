#include "parser/layer/range_cache.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <utility>

#include "parser/base/blocked_signals.h"
#include "parser/base/cancellation.h"
#include "parser/base/error.h"
#include "parser/io/remote_object.h"

namespace ckptfs {
namespace {

using std::chrono::milliseconds;

// A fetch fails at the timeout, with a message that says why; its readers soon after.
constexpr milliseconds kGrace{1000};

// A reader that begins to wait so soon after one has failed repeats its read, as the kernel does.
constexpr milliseconds kRepeat{2000};

// The slowest link on which a long read succeeds, in bytes per second.
constexpr uint64_t kSlowestLink = 16 << 10;

// Blocks that a reader copies at a time: it holds them, so they are few.
constexpr size_t kMostPinned = 8;

}  // namespace

// An object as a source.
class RangeCache::Cached final : public ByteSource {
 public:
  Cached(std::shared_ptr<RangeCache> cache, uint32_t number, RemoteObjectPtr object)
      : cache_(std::move(cache)), number_(number), object_(std::move(object)) {}

  std::string name() const override { return object_->name(); }
  uint64_t size() const override { return object_->size(); }
  timespec modified() const override { return object_->modified(); }
  bool is_remote() const override { return true; }

  bool is_distant() const override {
    const MutexLock lock(cache_->mutex_);
    return cache_->scheduler_.is_distant();
  }

  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    assert(offset <= size() && buffer.size() <= size() - offset);
    cache_->Read(number_, size(), offset, buffer);
  }

  bool TryReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    assert(offset <= size() && buffer.size() <= size() - offset);
    return cache_->TryRead(number_, size(), offset, buffer);
  }

  void AdviseFile(ByteRange range) const override {
    const MutexLock lock(cache_->mutex_);
    cache_->scheduler_.AdviseFile(number_, range);
  }

  void Prefetch(std::span<const ByteRange> ranges) const override {
    const MutexLock lock(cache_->mutex_);
    cache_->scheduler_.Prefetch(number_, ranges);
    cache_->Dispatch();
  }

 private:
  const std::shared_ptr<RangeCache> cache_;
  const uint32_t number_;
  const RemoteObjectPtr object_;
};

RangeCache::RangeCache(Settings settings)
    : settings_(std::move(settings)), scheduler_(settings_.memory, kMostFetches, settings_.disk) {}

RangeCache::~RangeCache() {
  Stop();
  std::vector<std::jthread> threads;
  {
    const MutexLock lock(mutex_);
    threads = std::move(threads_);
  }
}

ByteSourcePtr RangeCache::Add(RemoteObjectPtr object) {
  const std::string identity = object->identity();
  DiskObjectPtr on_disk;
  if (settings_.open_on_disk && !identity.empty()) {
    on_disk = settings_.open_on_disk(identity, object->size());
  }
  const MutexLock lock(mutex_);
  const uint32_t number = scheduler_.AddObject(object->size());
  objects_.push_back({object, std::move(on_disk)});
  auto head = is_stopped_ ? nullptr : scheduler_.TakeHead(number, object->head(), Clock::now());
  if (head != nullptr) {
    fetches_.push_back(std::move(head));
    taken_.notify_one();
    if (fetches_.size() > idle_threads_) StartThreads();
  } else {
    object->ForgetHead();
  }
  return std::make_shared<Cached>(shared_from_this(), number, std::move(object));
}

void RangeCache::Stop() {
  {
    const MutexLock lock(mutex_);
    is_stopped_ = true;
    scheduler_.StopAll();
  }
  arrived_.notify_all();
  taken_.notify_all();
}

RangeCache::Stats RangeCache::stats() const {
  const MutexLock lock(mutex_);
  Stats stats = stats_;
  stats.memory = scheduler_.capacity();
  stats.used = scheduler_.memory_used();
  stats.busy = scheduler_.memory_busy();
  stats.fetches = scheduler_.fetch_count();
  stats.waiting = scheduler_.waiter_count();
  return stats;
}

// Passes due fetches to the threads. Called after a change of the cached blocks, the waiting
// readers or the streams.
void RangeCache::Dispatch() {
  if (is_stopped_) return;
  while (auto fetch = scheduler_.Take(Clock::now())) {
    unconnected_ += fetch->is_awaited ? 1 : 0;
    fetches_.push_back(std::move(fetch));
    taken_.notify_one();
  }
  if (fetches_.size() > idle_threads_) StartThreads();
}

// Starts a thread for each fetch that no thread is idle for.
void RangeCache::StartThreads() {
  const BlockedSignals blocked;  // Other threads handle signals.
  try {
    while (idle_threads_ < fetches_.size() && threads_.size() < kMostFetches) {
      threads_.emplace_back([this] { RunFetches(); });
      ++idle_threads_;
    }
  } catch (const std::system_error&) {
    if (threads_.empty()) Fail(EAGAIN, "cannot start a thread");
  }
}

// Copies the cached beginning of `buffer`. Returns its length. Unlocks the mutex while it copies.
size_t RangeCache::CopyReady(uint32_t object, uint64_t size, uint64_t offset,
                             std::span<std::byte> buffer) {
  struct Part {
    Frame* frame;
    size_t begin;
    size_t length;
  };
  std::array<Part, kMostPinned> parts = {};
  size_t count = 0;
  size_t length = 0;
  while (count < kMostPinned && length < buffer.size()) {
    const uint64_t position = offset + length;
    const BlockKey key{object, position / kBlockSize};
    const size_t begin = position % kBlockSize;
    const size_t end = std::min(BlockLength(size, key.block), begin + buffer.size() - length);
    Frame* frame = scheduler_.Find(key, begin, end);
    if (frame == nullptr) break;
    scheduler_.Pin(*frame);
    parts[count++] = {frame, begin, end - begin};
    length += end - begin;
  }
  if (count == 0) return 0;
  mutex_.unlock();
  for (size_t i = 0, done = 0; i < count; done += parts[i].length, ++i) {
    std::memcpy(buffer.data() + done, parts[i].frame->bytes + parts[i].begin, parts[i].length);
  }
  mutex_.lock();
  for (size_t i = 0; i < count; ++i) scheduler_.Unpin(*parts[i].frame, parts[i].length);
  stats_.read += length;
  return length;
}

// Records that bytes have arrived, or that the first of some readers begins to wait.
void RangeCache::ResetSilence(Clock::time_point now) {
  silence_ = now;
  failure_.reset();
}

// Rather with the reason why the last fetch failed.
void RangeCache::FailTimedOut() {
  if (failure_) throw Error(*failure_);
  Fail(ETIMEDOUT, "timed out after {} s", std::chrono::duration<double>(settings_.timeout).count());
}

void RangeCache::WaitFor(MutexLock& lock, Waiter& waiter, Clock::time_point deadline) {
  auto now = Clock::now();
  if (scheduler_.waiter_count() == 0 && now - failed_ > kRepeat) ResetSilence(now);
  scheduler_.Wait(waiter);
  bool is_cancelled = false;
  bool is_late = false;
  while (!is_stopped_ && !is_cancelled && !is_late && !waiter.error &&
         scheduler_.Find(waiter.key, waiter.begin, waiter.needed) == nullptr) {
    Dispatch();
    is_late = now >= deadline || now - silence_ >= settings_.timeout + kGrace;
    if (is_late) break;
    arrived_.wait_for(lock, scheduler_.poll());
    is_cancelled = Cancellation::IsRequested();
    now = Clock::now();
  }
  scheduler_.Leave(waiter);
  if (is_cancelled || is_late || waiter.error) failed_ = now;
  if (is_stopped_) Fail(ECANCELED, "the mount is shutting down");
  if (waiter.error) {
    failure_ = waiter.error;
    throw Error(*waiter.error);
  }
  if (is_cancelled) Fail(EINTR, "interrupted");
  if (is_late) FailTimedOut();
}

void RangeCache::Read(uint32_t object, uint64_t size, uint64_t offset,
                      std::span<std::byte> buffer) {
  if (buffer.empty()) return;
  MutexLock lock(mutex_);
  auto deadline = Clock::now() + settings_.timeout + kGrace;
  const auto stream = scheduler_.RecordRead(object, {offset, buffer.size()}, Clock::now());
  while (true) {
    const size_t copied = CopyReady(object, size, offset, buffer);
    offset += copied;
    buffer = buffer.subspan(copied);
    if (buffer.empty()) break;
    deadline += milliseconds(copied * 1000 / kSlowestLink);
    if (copied != 0) continue;
    const uint64_t block = offset / kBlockSize;
    const uint64_t end = offset + buffer.size();
    Waiter waiter{.key = {object, block},
                  .begin = static_cast<size_t>(offset % kBlockSize),
                  .needed = static_cast<size_t>(
                      std::min<uint64_t>(end - block * kBlockSize, BlockLength(size, block))),
                  .end_block = BlockCount(end),
                  .stream = stream,
                  .error = std::nullopt};
    WaitFor(lock, waiter, deadline);
  }
  Dispatch();
}

// Returns whether all of a range is cached.
bool RangeCache::IsReady(uint32_t object, uint64_t size, uint64_t offset, size_t length) {
  const uint64_t end = offset + length;
  while (offset < end) {
    const uint64_t block = offset / kBlockSize;
    const uint64_t needed = std::min<uint64_t>(end - block * kBlockSize, BlockLength(size, block));
    const auto begin = static_cast<size_t>(offset % kBlockSize);
    if (scheduler_.Find({object, block}, begin, static_cast<size_t>(needed)) == nullptr)
      return false;
    offset = (block + 1) * kBlockSize;
  }
  return true;
}

bool RangeCache::TryRead(uint32_t object, uint64_t size, uint64_t offset,
                         std::span<std::byte> buffer) {
  if (buffer.empty()) return true;
  MutexLock lock(mutex_);
  if (!IsReady(object, size, offset, buffer.size())) return false;
  scheduler_.RecordRead(object, {offset, buffer.size()}, Clock::now());
  while (!buffer.empty()) {  // Meanwhile blocks that are not pinned yet may be evicted.
    const size_t copied = CopyReady(object, size, offset, buffer);
    if (copied == 0) return false;
    offset += copied;
    buffer = buffer.subspan(copied);
  }
  Dispatch();
  return true;
}

}  // namespace ckptfs
