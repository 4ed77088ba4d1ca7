#include "parser/layer/decoders.h"

#include <iterator>
#include <utility>

#include "parser/base/interruption.h"

namespace ckptfs {

void Decoders::Return::operator()(Cursor* cursor) const noexcept {
  const size_t memory = cursor->memory();
  delete cursor;
  {
    const std::scoped_lock lock(decoders->mutex_);
    decoders->used_ -= memory;
  }
  decoders->changed_.notify_all();
}

Decoders::Working Decoders::Start(std::unique_ptr<Cursor> cursor) {
  const size_t memory = cursor->memory();
  while (true) {
    std::list<Kept> dropped;  // Outlives the lock.
    std::unique_lock lock(mutex_);
    Interruption::Wait(lock, changed_, [&] {
      return used_ == 0 || (used_ <= capacity_ && memory <= capacity_ - used_) || !kept_.empty();
    });
    if (used_ == 0 || (used_ <= capacity_ && memory <= capacity_ - used_)) {
      used_ += memory;
      return {cursor.release(), Return{this}};
    }
    dropped.splice(dropped.end(), kept_, std::prev(kept_.end()));
  }
}

Decoders::Working Decoders::Take(uint64_t owner, uint64_t begin, uint64_t end) {
  const std::scoped_lock lock(mutex_);
  auto best = kept_.end();
  for (auto kept = kept_.begin(); kept != kept_.end(); ++kept) {
    if (kept->owner != owner) continue;
    const uint64_t position = kept->cursor->position();
    if (position < begin || position > end) continue;
    if (best == kept_.end() || position > best->cursor->position()) best = kept;
  }
  if (best == kept_.end()) return {nullptr, Return{this}};
  Working cursor = std::move(best->cursor);
  kept_.erase(best);
  return cursor;
}

void Decoders::Keep(uint64_t owner, Working cursor) {
  std::list<Kept> one;
  one.push_back({.owner = owner, .cursor = std::move(cursor)});
  {
    const std::scoped_lock lock(mutex_);
    kept_.splice(kept_.begin(), one);
  }
  changed_.notify_all();
}

void Decoders::Drop(uint64_t owner) {
  std::list<Kept> dropped;  // Outlives the lock.
  const std::scoped_lock lock(mutex_);
  for (auto kept = kept_.begin(); kept != kept_.end();) {
    const auto next = std::next(kept);
    if (kept->owner == owner) dropped.splice(dropped.end(), kept_, kept);
    kept = next;
  }
}

size_t Decoders::used() const {
  const std::scoped_lock lock(mutex_);
  return used_;
}

}  // namespace ckptfs
