#include "fs/namespace.h"

#include <cerrno>

#include "parser/base/error.h"

namespace ckptfs {

TreeNamespace::TreeNamespace(const Tree& tree, timespec modified, mode_t umask)
    : tree_(tree), modified_(modified), umask_(umask) {}

Node TreeNamespace::Find(uint64_t number) const {
  const Inode* const inode = tree_.Find(number);
  if (inode == nullptr) Fail(ENOENT, "no such inode");
  return {.inode = inode, .tree = &tree_, .modified = modified_, .umask = umask_};
}

std::optional<Found> TreeNamespace::Lookup(uint64_t directory, std::string_view name,
                                           bool /*may_block*/) {
  const uint64_t number = tree_.Lookup(directory, name);
  if (number == 0) return Found{.seconds = kForever};
  return Found{.number = number, .node = Find(number), .seconds = kForever};
}

std::optional<DirectoryView> TreeNamespace::List(uint64_t directory, bool /*may_block*/) {
  const Inode& inode = *Find(directory).inode;
  return DirectoryView{.entries = tree_.Entries(inode), .parent = inode.parent};
}

bool TreeNamespace::has_slow_reads() const {
  for (uint64_t number = Tree::kRoot; number < Tree::kRoot + tree_.inode_count(); ++number) {
    const Inode& inode = *tree_.Find(number);
    if (!inode.is_directory() && !inode.source->is_immediate()) return true;
  }
  return false;
}

}  // namespace ckptfs
