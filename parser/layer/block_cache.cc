#include "parser/layer/block_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstring>
#include <exception>
#include <limits>
#include <new>
#include <system_error>
#include <utility>

#include "parser/base/cancellation.h"

namespace ckptfs {
namespace {

// No block precedes this one, and none follows it.
constexpr uint64_t kNoBlock = std::numeric_limits<uint64_t>::max() - 1;

constexpr size_t kMostWaiting = 8;

// The time limit of one job. A block for the next read takes a hundredth of it.
constexpr std::chrono::seconds kMostTime(3);

}  // namespace

Worker::~Worker() {
  {
    const MutexLock lock(mutex_);
    is_ending_ = is_interrupted_ = true;
    waiting_.clear();
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Worker::Do(uint64_t owner, Job job) {
  {
    const MutexLock lock(mutex_);
    if (waiting_.size() == kMostWaiting) return;
    if (!thread_.joinable()) {
      try {
        thread_ = std::thread([this] { Run(); });
      } catch (const std::system_error&) {  // No more threads: jobs are optional.
        return;
      }
    }
    waiting_.push_back({.owner = owner, .job = std::move(job)});
  }
  changed_.notify_all();
}

void Worker::Cancel(uint64_t owner) {
  MutexLock lock(mutex_);
  std::erase_if(waiting_, [owner](const Waiting& w) { return w.owner == owner; });
  if (busy_for_ == owner) is_interrupted_ = true;
  changed_.wait(lock, [&]() REQUIRES(mutex_) { return busy_for_ != owner; });
}

void Worker::RunJob(const Job& job) const {
  const auto end = std::chrono::steady_clock::now() + kMostTime;
  const Cancellation::IsCancelled is_cancelled = [&] {
    return is_interrupted_ || std::chrono::steady_clock::now() > end;
  };
  const Cancellation interruption(is_cancelled);
  job();
}

void Worker::Run() {
  MutexLock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&]() REQUIRES(mutex_) { return is_ending_ || !waiting_.empty(); });
    if (is_ending_) return;
    Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    busy_for_ = next.owner;
    is_interrupted_ = false;
    lock.unlock();
    RunJob(next.job);
    next.job = nullptr;
    lock.lock();
    busy_for_.reset();
    changed_.notify_all();
  }
}

namespace {

constexpr size_t kMaxBlocks = 64;  // They are searched one by one.
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kMostSpares = 3;
constexpr size_t kMostOfSpare = size_t{2} << 20;  // Bytes.

// In huge pages if available: allocating 2,000 small ones takes as long as filling them.
Pages Map(size_t size) {
  const size_t length = size < kHugePage ? size : size + kHugePage;
  void* const begin =
      ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED) throw std::bad_alloc();
  void* aligned = begin;
  if (size >= kHugePage) {
    size_t space = length;
    std::align(kHugePage, size, aligned, space);
    ::madvise(aligned, size, MADV_HUGEPAGE);
  }
  return {static_cast<std::byte*>(aligned), {.begin = begin, .length = length}};
}

}  // namespace

void Unmap::operator()(std::byte* /*bytes*/) const noexcept { ::munmap(begin, length); }

uint64_t BlockCache::NewOwner() {
  const MutexLock lock(mutex_);
  return ++owners_;
}

size_t BlockCache::used() const {
  const MutexLock lock(mutex_);
  return used_;
}

bool BlockCache::Read(const Key& key, size_t size, size_t offset, std::span<std::byte> buffer,
                      const Fill& fill) {
  assert(offset <= size && buffer.size() <= size - offset);
  Block* const block = Acquire(key, size, fill != nullptr);
  if (block == nullptr) return false;
  const std::byte* bytes = nullptr;
  try {
    bytes = BytesOf(*block, fill);
  } catch (...) {
    Release(*block, 0);
    throw;
  }
  if (bytes != nullptr) std::memcpy(buffer.data(), bytes + offset, buffer.size());
  Release(*block, bytes != nullptr ? buffer.size() : 0);
  return bytes != nullptr;
}

void BlockCache::ReadAlone(size_t size, size_t offset, std::span<std::byte> buffer,
                           const Fill& fill) {
  assert(offset <= size && buffer.size() <= size - offset);
  {
    MutexLock lock(mutex_);
    Cancellation::Wait(lock, changed_, [&]() REQUIRES(mutex_) { return !is_alone_; });
    is_alone_ = true;
  }
  const auto end = [&] {
    {
      const MutexLock lock(mutex_);
      is_alone_ = false;
    }
    changed_.notify_all();
  };
  try {
    const Pages bytes = Map(size);
    fill({bytes.get(), size});
    std::memcpy(buffer.data(), bytes.get() + offset, buffer.size());
  } catch (...) {
    end();
    throw;
  }
  end();
}

void BlockCache::Prepare(const Key& key, size_t size, const Fill& fill,
                         const std::function<bool()>& is_wanted) {
  std::list<Block> evicted;  // Outlives the lock: freeing megabytes takes long.
  Block* block = nullptr;
  {
    const MutexLock lock(mutex_);
    // With the mutex locked, so that later readers of the block find it.
    if (std::ranges::count(blocks_, key, &Block::key) != 0 || !is_wanted()) return;
    block = Add(key, size, true, evicted);
  }
  if (block == nullptr) return;
  try {
    BytesOf(*block, fill);
  } catch (const std::exception&) {  // No read needs it yet.
  }
  Release(*block, 0);
}

void BlockCache::Prefetch(const Key& key, size_t size, Fill fill, std::function<bool()> is_wanted) {
  worker_.Do(key.owner, [=, this, fill = std::move(fill), is_wanted = std::move(is_wanted)] {
    Prepare(key, size, fill, is_wanted);
  });
}

BlockCache::Block* BlockCache::Add(const Key& key, size_t size, bool spare_unread,
                                   std::list<Block>& evicted) {
  if (!MakeRoom(size, spare_unread, evicted)) return nullptr;
  Block& block = blocks_.emplace_front(key, size);
  used_ += size;
  block.users = 1;
  if (const auto spare = std::ranges::find(spares_, size, &Spare::size); spare != spares_.end()) {
    block.bytes = std::move(spare->bytes);
    spares_.erase(spare);
  }
  return &block;
}

BlockCache::Block* BlockCache::Acquire(const Key& key, size_t size, bool may_make) {
  std::list<Block> evicted;  // Outlives the lock: freeing megabytes takes long.
  const MutexLock lock(mutex_);
  const auto found = std::ranges::find(blocks_, key, &Block::key);
  if (found == blocks_.end()) return may_make ? Add(key, size, false, evicted) : nullptr;
  blocks_.splice(blocks_.begin(), blocks_, found);
  ++found->users;
  return &*found;
}

bool BlockCache::MakeRoom(size_t size, bool spare_unread, std::list<Block>& evicted) {
  for (auto block = blocks_.end(); block != blocks_.begin();) {
    if (size <= capacity_ - used_ && blocks_.size() < kMaxBlocks) break;
    --block;
    if (block->users > 0 || (spare_unread && block->given == 0)) continue;
    used_ -= block->size;
    const auto oldest = block++;
    evicted.splice(evicted.end(), blocks_, oldest);
  }
  return size <= capacity_ - used_ && blocks_.size() < kMaxBlocks;
}

const std::byte* BlockCache::BytesOf(Block& block, const Fill& fill) {
  {
    MutexLock lock(mutex_);
    Cancellation::Wait(lock, changed_, [&] { return !block.is_filling; });
    if (block.is_filled || fill == nullptr) return block.is_filled ? block.bytes.get() : nullptr;
    block.is_filling = true;
  }
  const auto end = [&](bool is_filled) {
    {
      const MutexLock lock(mutex_);
      block.is_filling = false;
      block.is_filled = is_filled;
    }
    changed_.notify_all();
  };
  try {
    if (block.bytes == nullptr) block.bytes = Map(block.size);
    fill({block.bytes.get(), block.size});
  } catch (...) {
    end(false);
    throw;
  }
  end(true);
  return block.bytes.get();
}

void BlockCache::Release(Block& block, size_t given) noexcept {
  std::list<Block> read_out;  // Outlives the lock.
  const MutexLock lock(mutex_);
  block.given += given;
  if (--block.users > 0) return;
  if (block.given < block.size && block.is_filled) return;
  used_ -= block.size;
  if (block.size <= kMostOfSpare && block.bytes != nullptr) {
    if (spares_.size() == kMostSpares) spares_.erase(spares_.begin());
    spares_.push_back({.bytes = std::move(block.bytes), .size = block.size});
  }
  const auto place = std::ranges::find(blocks_, &block, [](Block& p) { return &p; });
  read_out.splice(read_out.end(), blocks_, place);
}

SequentialBlocks::SequentialBlocks(std::shared_ptr<BlockCache> cache, uint64_t size,
                                   uint64_t block_size, Fill fill)
    : cache_(std::move(cache)),
      owner_(cache_->NewOwner()),
      size_(size),
      block_size_(block_size),
      fill_(std::move(fill)),
      current_(kNoBlock) {}

size_t SequentialBlocks::SizeOf(uint64_t index) const {
  return std::min(block_size_, size_ - index * block_size_);
}

// Sequential-read heuristic: a read of the block after the previous one starts read-ahead, as does
// the second request of the kernel for the same block.
bool SequentialBlocks::Read(uint64_t index, size_t offset, std::span<std::byte> buffer) const {
  constexpr size_t kSecondRequest = size_t{128} << 10;  // Its first byte.
  const uint64_t before = current_.exchange(index);
  const bool is_second = offset <= kSecondRequest && kSecondRequest - offset < buffer.size();
  if (before + 1 == index || (before == index && is_second)) PrefetchNext(index);
  return cache_->Read({.owner = owner_, .index = index}, SizeOf(index), offset, buffer,
                      [&](std::span<std::byte> block) { fill_(index, block); });
}

void SequentialBlocks::ReadAlone(uint64_t index, size_t offset, std::span<std::byte> buffer) const {
  cache_->ReadAlone(SizeOf(index), offset, buffer,
                    [&](std::span<std::byte> block) { fill_(index, block); });
}

void SequentialBlocks::PrefetchNext(uint64_t index) const {
  const uint64_t next = index + 1;
  if (next * block_size_ >= size_) return;
  cache_->Prefetch(
      {.owner = owner_, .index = next}, SizeOf(next),
      [this, next](std::span<std::byte> block) { fill_(next, block); },
      [this, index] { return current_ == index; });
}

}  // namespace ckptfs
