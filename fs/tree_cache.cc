#include "fs/tree_cache.h"

#include <algorithm>
#include <utility>

namespace ckptfs {

TreeCache::Slot TreeCache::Add(StoredTree stored) {
  const Slot slot = ++last_slot_;
  memory_ += stored.memory;
  size_ += stored.tree->size();
  inodes_ += stored.tree->inode_count();
  idle_.emplace(++last_use_, slot);
  slots_.emplace(slot, Held{.stored = std::move(stored), .used = last_use_});
  return slot;
}

const StoredTree* TreeCache::Find(Slot slot) const {
  const auto found = slots_.find(slot);
  return found == slots_.end() ? nullptr : &found->second.stored;
}

template <typename Change>
void TreeCache::Reorder(Slot slot, Held& held, const Change& change) {
  Order& before = OrderOf(held);
  before.erase(held.used);
  if (&before == &leaving_) leaving_memory_ -= held.stored.memory;
  change();
  Order& after = OrderOf(held);
  if (&after == &leaving_) leaving_memory_ += held.stored.memory;
  after.emplace(held.used, slot);
}

void TreeCache::Touch(Slot slot) {
  Held& held = slots_.at(slot);
  Reorder(slot, held, [&] {
    held.used = ++last_use_;
    held.is_asked_for = false;
  });
}

void TreeCache::Refer(Slot slot, uint64_t count) {
  const auto found = slots_.find(slot);
  if (found == slots_.end()) return;
  references_ += count;
  Reorder(slot, found->second, [&] { found->second.references += count; });
}

void TreeCache::Forget(Slot slot, uint64_t count) {
  const auto found = slots_.find(slot);
  if (found == slots_.end()) return;
  Held& held = found->second;
  count = std::min(count, held.references);
  references_ -= count;
  Reorder(slot, held, [&] {
    held.references -= count;
    if (held.references == 0) held.is_asked_for = false;
  });
  if (held.references == 0 && held.is_retired) replaced_.push_back(Take(slot));
}

void TreeCache::Retire(Slot slot) {
  const auto found = slots_.find(slot);
  if (found == slots_.end()) return;
  found->second.is_retired = true;
  if (found->second.references == 0) replaced_.push_back(Take(slot));
}

StoredTree TreeCache::Take(Slot slot) {
  Held held = std::move(slots_.extract(slot).mapped());
  idle_.erase(held.used);
  memory_ -= held.stored.memory;
  size_ -= held.stored.tree->size();
  inodes_ -= held.stored.tree->inode_count();
  return std::move(held.stored);
}

TreeCache::Excess TreeCache::TakeExcess() {
  Excess excess{.dropped = std::exchange(replaced_, {}), .in_use = {}};
  while (memory_ > limit_ && !idle_.empty() && idle_.begin()->first != last_use_) {
    excess.dropped.push_back(Take(idle_.begin()->second));
  }
  // Trees that the kernel has been asked to forget count as forgotten.
  while (memory_ - leaving_memory_ > limit_ && !busy_.empty() &&
         busy_.begin()->first != last_use_) {
    const Slot slot = busy_.begin()->second;
    Held& held = slots_.at(slot);
    Reorder(slot, held, [&] { held.is_asked_for = true; });
    excess.in_use.push_back(held.stored.path);
  }
  return excess;
}

}  // namespace ckptfs
