#include "fs/invalidator.h"

#include <utility>

#include "parser/base/error.h"

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

void Invalidator::Add(uint64_t number) { AddEntry(number, {}); }

void Invalidator::AddEntry(uint64_t directory, std::string name) {
  {
    const MutexLock lock(mutex_);
    added_.insert({.number = directory, .name = std::move(name)});
  }
  is_added_.notify_one();
}

std::optional<Invalidator::Item> Invalidator::Take(const std::stop_token& stop) {
  MutexLock lock(mutex_);
  if (!is_added_.wait(lock, stop, [&]() REQUIRES(mutex_) { return !added_.empty(); }) ||
      stop.stop_requested()) {
    return std::nullopt;
  }
  return std::move(added_.extract(added_.begin()).value());
}

void Invalidator::Run(fuse_session* session, const std::stop_token& stop) {
  while (const std::optional<Item> item = Take(stop)) {
    if (item->name.empty()) {
      InvalidateCorrupt(session, item->number, stop);
    } else {
      fuse_lowlevel_notify_inval_entry(session, item->number, item->name.data(), item->name.size());
    }
  }
}

void Invalidator::InvalidateCorrupt(fuse_session* session, uint64_t number,
                                    const std::stop_token& stop) try {
  Invalidate(session, number);
  if (known_.contains(number)) return;
  const Node node = files_.Find(number);
  if (node.tree == nullptr) return;
  // Other files may show the same bytes in another way.
  const Tree& tree = *node.tree;
  for (uint64_t i = Tree::kRoot; i < Tree::kRoot + tree.inode_count(); ++i) {
    if (stop.stop_requested()) return;
    const Inode& inode = *tree.Find(i);
    if (inode.is_directory() || inode.source->verdict() != Verdict::kWrong) continue;
    if (!known_.insert(node.base + i).second) continue;
    if (node.base + i != number) Invalidate(session, node.base + i);
  }
} catch (const Error&) {  // NOLINT(bugprone-empty-catch): the kernel has forgotten the file.
}

}  // namespace ckptfs
