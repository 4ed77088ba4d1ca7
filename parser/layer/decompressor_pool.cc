#include "parser/layer/decompressor_pool.h"

#include <iterator>
#include <utility>

#include "parser/base/cancellation.h"

namespace ckptfs {

void DecompressorPool::Return::operator()(Decompressor* decompressor) const noexcept {
  const size_t memory = decompressor->memory();
  delete decompressor;
  {
    const std::scoped_lock lock(decompressors->mutex_);
    decompressors->used_ -= memory;
  }
  decompressors->changed_.notify_all();
}

DecompressorPool::Working DecompressorPool::Start(std::unique_ptr<Decompressor> decompressor) {
  const size_t memory = decompressor->memory();
  while (true) {
    std::list<Kept> dropped;  // Outlives the lock.
    std::unique_lock lock(mutex_);
    Cancellation::Wait(lock, changed_, [&] {
      return used_ == 0 || (used_ <= capacity_ && memory <= capacity_ - used_) || !kept_.empty();
    });
    if (used_ == 0 || (used_ <= capacity_ && memory <= capacity_ - used_)) {
      used_ += memory;
      return {decompressor.release(), Return{this}};
    }
    dropped.splice(dropped.end(), kept_, std::prev(kept_.end()));
  }
}

DecompressorPool::Working DecompressorPool::Take(uint64_t owner, uint64_t begin, uint64_t end) {
  const std::scoped_lock lock(mutex_);
  auto best = kept_.end();
  for (auto kept = kept_.begin(); kept != kept_.end(); ++kept) {
    if (kept->owner != owner) continue;
    const uint64_t position = kept->decompressor->position();
    if (position < begin || position > end) continue;
    if (best == kept_.end() || position > best->decompressor->position()) best = kept;
  }
  if (best == kept_.end()) return {nullptr, Return{this}};
  Working decompressor = std::move(best->decompressor);
  kept_.erase(best);
  return decompressor;
}

void DecompressorPool::Keep(uint64_t owner, Working decompressor) {
  std::list<Kept> one;
  one.push_back({.owner = owner, .decompressor = std::move(decompressor)});
  {
    const std::scoped_lock lock(mutex_);
    kept_.splice(kept_.begin(), one);
  }
  changed_.notify_all();
}

void DecompressorPool::Drop(uint64_t owner) {
  std::list<Kept> dropped;  // Outlives the lock.
  const std::scoped_lock lock(mutex_);
  for (auto kept = kept_.begin(); kept != kept_.end();) {
    const auto next = std::next(kept);
    if (kept->owner == owner) dropped.splice(dropped.end(), kept_, kept);
    kept = next;
  }
}

size_t DecompressorPool::used() const {
  const std::scoped_lock lock(mutex_);
  return used_;
}

}  // namespace ckptfs
