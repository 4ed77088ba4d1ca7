// The trees of a store that are in memory: which of them the kernel refers to, and which are
// dropped when they exceed their limit.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "fs/tree.h"

namespace ckptfs {

// A tree in a slot, whose number is the upper half of the numbers of its inodes.
struct StoredTree {
  std::shared_ptr<const Tree> tree;
  uint64_t memory = 0;     // Bytes.
  std::string path;        // Of its directory in the store.
  timespec modified = {};  // Of all its files.
  mode_t umask = 0;
};

// Belongs to one thread, or to the mutex of its owner. Does no I/O.
class TreeCache {
 public:
  using Slot = uint32_t;  // 0: none.

  // Trees beyond `limit` bytes are dropped.
  explicit TreeCache(uint64_t limit) : limit_(limit) {}

  // Adds a tree, as the one that was used last.
  Slot Add(StoredTree stored);

  // Returns the tree in `slot`; null if it has been dropped.
  const StoredTree* Find(Slot slot) const;

  // Makes the tree in `slot`, which exists, the one that was used last.
  void Touch(Slot slot);

  // Count references of the kernel to inodes of the tree in `slot`. A slot that does not exist is
  // ignored.
  void Refer(Slot slot, uint64_t count = 1);
  void Forget(Slot slot, uint64_t count);

  // Drops the tree in `slot` as soon as the kernel has no reference to it: a new one replaces it.
  void Retire(Slot slot);

  struct Excess {
    std::vector<StoredTree> dropped;  // To be destroyed outside of any lock.

    // Paths of the trees that the kernel should forget. Each is named once until it is used again.
    std::vector<std::string> in_use;
  };

  // Drops unused trees until the others are within the limit, those that were not used for longest
  // first. The one that was used last remains.
  Excess TakeExcess();

  uint64_t limit() const { return limit_; }
  uint64_t memory() const { return memory_; }          // Of all trees, in bytes.
  uint64_t references() const { return references_; }  // To all trees.
  uint64_t size() const { return size_; }              // Of their files, in bytes.
  uint64_t inode_count() const { return inodes_; }
  size_t count() const { return slots_.size(); }

 private:
  struct Held {
    StoredTree stored;
    uint64_t references = 0;
    uint64_t used = 0;  // Larger for later uses.
    bool is_retired = false;
    bool is_asked_for = false;  // The kernel was asked to forget it.
  };

  using Order = std::map<uint64_t, Slot>;  // By use.

  // That a tree is in.
  Order& OrderOf(const Held& held) {
    if (held.references == 0) return idle_;
    return held.is_asked_for ? leaving_ : busy_;
  }

  // Changes a tree with `change` and puts it into its order.
  template <typename Change>
  void Reorder(Slot slot, Held& held, const Change& change);

  // Removes a tree without references.
  StoredTree Take(Slot slot);

  const uint64_t limit_;
  std::unordered_map<Slot, Held> slots_;
  Order idle_;                        // Without references.
  Order busy_;                        // With references.
  Order leaving_;                     // The kernel was asked to forget them.
  uint64_t leaving_memory_ = 0;       // Of these, in bytes.
  std::vector<StoredTree> replaced_;  // Those that were retired and are dropped.
  Slot last_slot_ = 0;
  uint64_t last_use_ = 0;
  uint64_t memory_ = 0;
  uint64_t references_ = 0;
  uint64_t size_ = 0;
  uint64_t inodes_ = 0;
};

}  // namespace ckptfs
