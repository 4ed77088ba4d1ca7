#include "fs/invalidator.h"

namespace ckptfs {
namespace {

// Fails if the kernel does not know the file any more, or there is no mount any more: then it has
// nothing of it.
void Invalidate(fuse_session* session, uint64_t number) {
  constexpr off_t kBegin = 0;
  constexpr off_t kAll = 0;
  fuse_lowlevel_notify_inval_inode(session, number, kBegin, kAll);
}

}  // namespace

Invalidator::Invalidator(const Tree& tree)
    : tree_(tree), is_known_(Tree::kRoot + tree.inode_count()) {}

void Invalidator::Add(uint64_t number) {
  {
    const MutexLock lock(mutex_);
    added_.insert(number);
  }
  is_added_.notify_one();
}

uint64_t Invalidator::Take(const std::stop_token& stop) {
  MutexLock lock(mutex_);
  if (!is_added_.wait(lock, stop, [&]() REQUIRES(mutex_) { return !added_.empty(); }) ||
      stop.stop_requested()) {
    return 0;
  }
  return added_.extract(added_.begin()).value();
}

void Invalidator::Run(fuse_session* session, const std::stop_token& stop) {
  while (const uint64_t number = Take(stop)) {
    Invalidate(session, number);
    if (is_known_[number]) continue;
    // Other files may show the same bytes in another way.
    for (uint64_t i = Tree::kRoot; i < is_known_.size() && !stop.stop_requested(); ++i) {
      const Inode* const inode = tree_.Find(i);
      if (is_known_[i] || inode == nullptr || inode->is_directory()) continue;
      if (inode->source->verdict() != Verdict::kWrong) continue;
      is_known_[i] = true;
      if (i != number) Invalidate(session, i);
    }
  }
}

}  // namespace ckptfs
