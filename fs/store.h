// A directory of many checkpoints: mirrors a folder, and shows the tree of each checkpoint X in a
// directory X.d.
//
// Everything that the kernel has looked up has an inode number. Numbers below 2^32 belong to files
// and folders of the store; those of a tree have the number of its slot in the upper half
// (tree_cache.h). A file or a checkpoint that is replaced gets another number, so that the caches
// of the kernel remain valid: open files show the old version.
//
// Checkpoints are read when something below X.d is looked up, and their trees dropped when others
// need the memory. Before that, the kernel is asked to forget X.d; it keeps what is open.

#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "fs/log.h"
#include "fs/namespace.h"
#include "fs/options.h"
#include "fs/store_folder.h"
#include "fs/tree_cache.h"
#include "fs/tree_reader.h"
#include "parser/base/mutex.h"

namespace ckptfs {

class Store final : public Namespace {
 public:
  // Asks the kernel to forget an entry of a directory. Returns immediately.
  using ForgetEntry = std::function<void(uint64_t directory, std::string name)>;

  // `umask` is taken away from the permissions of the root. `options` and `log` must outlive this.
  Store(FolderPtr folder, const Options& options, mode_t umask, ReadOneOfMany read, Log& log);

  // To be called before the kernel sends requests. Without it, trees in use are never dropped.
  void SetForgetEntry(ForgetEntry forget) { forget_entry_ = std::move(forget); }

  Node Find(uint64_t number) const override;
  std::optional<Found> Lookup(uint64_t directory, std::string_view name, bool may_block) override;
  std::optional<DirectoryView> List(uint64_t directory, bool may_block) override;
  void Refer(uint64_t number) override;
  void Forget(uint64_t number, uint64_t count) noexcept override;
  bool is_constant() const override { return false; }
  bool has_slow_reads() const override { return true; }
  Totals totals() const override;

  // Returns a sentence about the trees.
  std::string Status() const;

 private:
  // A file, a folder, a link, or the directory of a tree.
  struct Item;
  using ItemPtr = std::shared_ptr<Item>;

  ItemPtr ItemAt(uint64_t number) const;
  Node NodeOf(const ItemPtr& item) const;
  static Node NodeOf(const StoredTree& stored, TreeCache::Slot slot, uint64_t inode);
  mode_t MaskOf(const EntryInfo& info) const;

  // Find an entry of a tree; nothing if the tree has been dropped.
  std::optional<Found> LookupInTree(TreeCache::Slot slot, uint64_t inode, std::string_view name);
  std::optional<DirectoryView> ListTree(TreeCache::Slot slot, uint64_t inode);

  std::optional<Found> LookupInFolder(const ItemPtr& parent, const std::string& name);
  ItemPtr MakeItem(const ItemPtr& parent, const std::string& name, StoreItem found) const;
  void Adopt(const ItemPtr& item) REQUIRES(mutex_);
  void Release(const ItemPtr& item) REQUIRES(mutex_);
  void ForgetOldFolders();

  std::optional<TreeCache::Slot> UseTree(const ItemPtr& item, bool may_block);
  TreeCache::Slot ReadTree(const ItemPtr& item);
  void DropExcess();

  const Options& options_;
  const StoreSettings settings_;
  const ReadOneOfMany read_;
  Log& log_;
  ForgetEntry forget_entry_;

  mutable Mutex mutex_;  // Not held during I/O, and not while trees are destroyed.
  std::condition_variable read_ended_;
  int reads_ GUARDED_BY(mutex_) = 0;  // Checkpoints that are being read.
  TreeCache cache_ GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, ItemPtr> items_ GUARDED_BY(mutex_);        // By number.
  std::map<std::string, ItemPtr, std::less<>> paths_ GUARDED_BY(mutex_);  // The newest by path.
  std::deque<std::weak_ptr<Item>> folders_ GUARDED_BY(mutex_);  // In the order of their lookups.
  uint64_t last_number_ GUARDED_BY(mutex_) = Tree::kRoot;
  uint64_t references_ GUARDED_BY(mutex_) = 0;  // Of the kernel, to items.
  uint64_t size_ GUARDED_BY(mutex_) = 0;        // Of the files that it knows, in bytes.
};

}  // namespace ckptfs
