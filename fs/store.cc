#include "fs/store.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <utility>
#include <vector>

#include "fs/checks.h"
#include "fs/tree_reader.h"
#include "parser/base/cancellation.h"
#include "parser/base/error.h"
#include "parser/layer/lazy_file.h"

namespace ckptfs {
namespace {

constexpr unsigned kSlotShift = 32;
constexpr uint64_t kInodeMask = (uint64_t{1} << kSlotShift) - 1;

// Bytes of a path. Each item has its own.
constexpr size_t kMostPath = 4096;

// Local folders that are open, each of which takes a descriptor. The kernel is asked to forget
// more.
size_t MostFolders() {
  constexpr rlim_t kMost = 10'000;
  constexpr rlim_t kShare = 4;
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMost;
  return std::min(kMost, limit.rlim_cur / kShare);
}

// Checkpoints that are read at the same time.
constexpr int kMostReads = 8;

// Trees in use may take so many times the limit.
constexpr uint64_t kMostInUse = 4;

// How long a checkpoint waits for their memory.
constexpr std::chrono::seconds kPatience{10};

// Of a directory whose subdirectories have not been counted.
constexpr uint32_t kUnknownLinks = 1;

TreeCache::Slot SlotOf(uint64_t number) {
  return static_cast<TreeCache::Slot>(number >> kSlotShift);
}

uint64_t BaseOf(TreeCache::Slot slot) { return uint64_t{slot} << kSlotShift; }

}  // namespace

struct Store::Item {
  StoreItem::Kind kind = StoreItem::Kind::kFolder;
  uint64_t number = 0;
  ItemPtr parent;        // Null for the root.
  std::string name;      // In the parent.
  std::string path;      // From the root.
  std::string identity;  // StoreItem::identity.
  Inode inode;
  timespec modified = {};
  mode_t umask = 0;
  std::string target;                   // Of a link.
  std::shared_ptr<StoreFolder> folder;  // A folder itself; of a tree, that of its checkpoint.
  StoreItem checkpoint;                 // Of a tree.

  // Guarded by the mutex of the store.
  uint64_t references = 0;   // Of the kernel.
  TreeCache::Slot slot = 0;  // Of a tree; may have been dropped.
  bool is_being_read = false;
  bool is_reported = false;  // Warnings and errors have been logged.
};

Store::Store(FolderPtr folder, const Options& options, mode_t umask, ReadOneOfMany read, Log& log)
    : options_(options),
      settings_{.mirrors_files = options.store != StoreMode::kTrees,
                .refresh = options.refresh,
                .has_views = !options.view || options.view->safetensors},
      read_(std::move(read)),
      log_(log),
      cache_(options.trees) {
  const auto root = std::make_shared<Item>();
  root->number = Tree::kRoot;
  root->modified = folder->modified();
  root->inode.links = kUnknownLinks;
  root->folder = std::make_shared<StoreFolder>(std::move(folder), settings_);
  root->umask = umask;
  const MutexLock lock(mutex_);
  items_.emplace(root->number, root);
  paths_.emplace("", root);
}

Store::ItemPtr Store::ItemAt(uint64_t number) const {
  const MutexLock lock(mutex_);
  const auto found = items_.find(number);
  if (found == items_.end()) Fail(ENOENT, "no such inode");
  return found->second;
}

Node Store::NodeOf(const ItemPtr& item) const {
  const bool is_link = item->kind == StoreItem::Kind::kLink;
  const StoreFolder& names = *(item->parent ? item->parent->folder : item->folder);
  // A folder that grows keeps its number.
  const timespec modified =
      item->kind == StoreItem::Kind::kFolder ? item->folder->folder().modified() : item->modified;
  return {.owner = item,
          .inode = &item->inode,
          .tree = nullptr,
          .target = is_link ? &item->target : nullptr,
          .base = 0,
          .modified = modified,
          .umask = item->umask,
          .seconds = names.seconds()};
}

Node Store::NodeOf(const StoredTree& stored, TreeCache::Slot slot, uint64_t inode) {
  const Inode* const found = stored.tree->Find(inode);
  if (found == nullptr) Fail(ENOENT, "no such inode");
  return {.owner = stored.tree,
          .inode = found,
          .tree = stored.tree.get(),
          .target = nullptr,
          .base = BaseOf(slot),
          .modified = stored.modified,
          .umask = stored.umask};
}

Node Store::Find(uint64_t number) const {
  const TreeCache::Slot slot = SlotOf(number);
  if (slot == 0) return NodeOf(ItemAt(number));
  const MutexLock lock(mutex_);
  const StoredTree* const stored = cache_.Find(slot);
  if (stored == nullptr) Fail(ENOENT, "no such inode");
  return NodeOf(*stored, slot, number & kInodeMask);
}

std::optional<Found> Store::LookupInTree(TreeCache::Slot slot, uint64_t inode,
                                         std::string_view name) {
  const MutexLock lock(mutex_);
  const StoredTree* const stored = cache_.Find(slot);
  if (stored == nullptr) return std::nullopt;
  const uint64_t found = stored->tree->Lookup(inode, name);
  if (found == 0) return Found{.seconds = kForever};
  cache_.Refer(slot);
  return Found{
      .number = BaseOf(slot) + found, .node = NodeOf(*stored, slot, found), .seconds = kForever};
}

std::optional<Found> Store::Lookup(uint64_t directory, std::string_view name, bool may_block) {
  if (const TreeCache::Slot slot = SlotOf(directory); slot != 0) {
    auto found = LookupInTree(slot, directory & kInodeMask, name);
    if (!found) Fail(ENOENT, "no such inode");
    return found;
  }
  const ItemPtr item = ItemAt(directory);
  if (item->kind == StoreItem::Kind::kTree) {
    // Between the two steps other trees may need its memory.
    while (true) {
      const auto slot = UseTree(item, may_block);
      if (!slot) return std::nullopt;
      if (*slot == 0) return Found{};
      if (auto found = LookupInTree(*slot, Tree::kRoot, name)) return found;
    }
  }
  if (item->kind != StoreItem::Kind::kFolder) Fail(ENOTDIR, "it is no directory");
  if (!may_block && item->folder->folder().is_remote()) return std::nullopt;
  return LookupInFolder(item, std::string(name));
}

std::optional<Found> Store::LookupInFolder(const ItemPtr& parent, const std::string& name) {
  auto found = parent->folder->Find(name);
  const double seconds = parent->folder->seconds();
  if (!found) return Found{.seconds = seconds};
  const auto kind = found->kind;
  const std::string identity = found->identity;
  const std::string path = parent->path.empty() ? name : parent->path + "/" + name;
  if (path.size() > kMostPath) Fail(ENAMETOOLONG, "path of more than {} bytes", kMostPath);
  const auto newest = [&]() REQUIRES(mutex_) {
    const auto known = paths_.find(path);
    const bool is_same =
        known != paths_.end() && known->second->kind == kind && known->second->identity == identity;
    return is_same ? known->second : nullptr;
  };
  const auto refer = [&](const ItemPtr& item) REQUIRES(mutex_) {
    ++item->references;
    ++references_;
    return item;
  };
  ItemPtr item;
  {
    const MutexLock lock(mutex_);
    if (item = newest(); item != nullptr) refer(item);
  }
  if (item == nullptr) {
    const ItemPtr made = MakeItem(parent, name, *std::move(found));
    if (made == nullptr) return Found{.seconds = seconds};
    made->path = path;
    const MutexLock lock(mutex_);
    if (item = newest(); item == nullptr) Adopt(item = made);
    refer(item);
  }
  ForgetOldFolders();
  return Found{.number = item->number, .node = NodeOf(item), .seconds = seconds};
}

Store::ItemPtr Store::MakeItem(const ItemPtr& parent, const std::string& name,
                               StoreItem found) const {
  auto item = std::make_shared<Item>();
  item->kind = found.kind;
  item->parent = parent;
  item->name = name;
  item->identity = found.identity;
  item->inode.links = kUnknownLinks;
  item->modified = found.info.modified;
  item->umask = MaskOf(found.info);
  switch (found.kind) {
    case StoreItem::Kind::kFile:
      item->inode.length = found.info.size;
      item->inode.source = MakeListedFile(parent->folder->shared(), name, found.info);
      break;
    case StoreItem::Kind::kFolder: {
      FolderPtr folder = parent->folder->folder().OpenFolder(name);
      if (folder == nullptr) return nullptr;
      item->folder = std::make_shared<StoreFolder>(std::move(folder), settings_);
      break;
    }
    case StoreItem::Kind::kLink:
      item->target = std::move(found.target);
      break;
    case StoreItem::Kind::kTree:
      item->folder = parent->folder;
      item->checkpoint = std::move(found);
      break;
  }
  return item;
}

mode_t Store::MaskOf(const EntryInfo& info) const {
  if (options_.umask) return *options_.umask;
  Readers readers;
  if (info.group) readers.Add(info.permissions, *info.group);
  return readers.MaskFor(options_.gid.value_or(::getgid()));
}

void Store::Adopt(const ItemPtr& item) {
  item->number = ++last_number_;
  size_ += item->inode.length;
  items_.emplace(item->number, item);
  ItemPtr& newest = paths_[item->path];
  if (newest != nullptr) {
    const ItemPtr old = std::exchange(newest, nullptr);
    cache_.Retire(std::exchange(old->slot, 0));
    Release(old);
  }
  newest = item;
  if (item->kind == StoreItem::Kind::kFolder) folders_.push_back(item);
}

void Store::ForgetOldFolders() {
  static const size_t most = MostFolders();
  while (true) {
    ItemPtr oldest;
    {
      const MutexLock lock(mutex_);
      if (folders_.size() <= most) return;
      oldest = folders_.front().lock();
      folders_.pop_front();
      if (oldest == nullptr || oldest->references == 0) continue;
    }
    if (forget_entry_) forget_entry_(oldest->parent->number, oldest->name);
  }
}

// Forgets an item that nobody needs.
void Store::Release(const ItemPtr& item) {
  if (item->references != 0 || item->number == Tree::kRoot || item->is_being_read) return;
  if (cache_.Find(item->slot) != nullptr) return;
  if (items_.erase(item->number) != 0) size_ -= item->inode.length;
  if (const auto newest = paths_.find(item->path); newest != paths_.end()) {
    if (newest->second == item) paths_.erase(newest);
  }
}

void Store::Refer(uint64_t number) {
  const MutexLock lock(mutex_);
  cache_.Refer(SlotOf(number));
}

void Store::Forget(uint64_t number, uint64_t count) noexcept try {
  {
    const MutexLock lock(mutex_);
    if (const TreeCache::Slot slot = SlotOf(number); slot != 0) {
      cache_.Forget(slot, count);
    } else if (const auto found = items_.find(number); found != items_.end()) {
      const ItemPtr item = found->second;
      count = std::min(count, item->references);
      item->references -= count;
      references_ -= count;
      Release(item);
    }
  }
  DropExcess();
} catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): trees are dropped later.
}

std::optional<DirectoryView> Store::List(uint64_t directory, bool may_block) {
  if (const TreeCache::Slot slot = SlotOf(directory); slot != 0) {
    auto view = ListTree(slot, directory & kInodeMask);
    if (!view) Fail(ENOENT, "no such inode");
    return view;
  }
  const ItemPtr item = ItemAt(directory);
  if (item->kind == StoreItem::Kind::kTree) {
    while (true) {
      const auto slot = UseTree(item, may_block);
      if (!slot) return std::nullopt;
      if (*slot == 0) return DirectoryView{.parent = item->parent->number};
      if (auto view = ListTree(*slot, Tree::kRoot)) {
        view->parent = item->parent->number;
        return view;
      }
    }
  }
  if (item->kind != StoreItem::Kind::kFolder) Fail(ENOTDIR, "it is no directory");
  if (!may_block) return std::nullopt;
  const auto listing = item->folder->List();
  return DirectoryView{.owner = listing,
                       .entries = listing->entries,
                       .parent = item->parent ? item->parent->number : item->number};
}

// The view counts as a reference, or the tree could be dropped while it is listed.
std::optional<DirectoryView> Store::ListTree(TreeCache::Slot slot, uint64_t inode) {
  const MutexLock lock(mutex_);
  const StoredTree* const stored = cache_.Find(slot);
  if (stored == nullptr) return std::nullopt;
  const Tree& tree = *stored->tree;
  const Inode* const found = tree.Find(inode);
  if (found == nullptr || !found->is_directory()) return std::nullopt;
  const std::shared_ptr<const void> owner(
      &tree, [this, slot](const void*) { Forget(BaseOf(slot) + Tree::kRoot, 1); });
  cache_.Refer(slot);
  return DirectoryView{.owner = owner,
                       .entries = tree.Entries(*found),
                       .base = BaseOf(slot),
                       .parent = BaseOf(slot) + found->parent};
}

// Returns the slot of the tree of `item`, which it reads if needed; 0 if the tree is empty for now.
// Returns nothing, without `may_block`, if it has to be read.
std::optional<TreeCache::Slot> Store::UseTree(const ItemPtr& item, bool may_block) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kPoll(10);
  const Clock::time_point start = Clock::now();
  while (true) {
    {
      MutexLock lock(mutex_);
      if (cache_.Find(item->slot) != nullptr) {
        cache_.Touch(item->slot);
        return item->slot;
      }
      if (!may_block) return std::nullopt;
      const bool has_memory = cache_.memory() <= kMostInUse * cache_.limit();
      if (has_memory && !item->is_being_read && reads_ < kMostReads) {
        item->is_being_read = true;
        ++reads_;
        break;
      }
      if (!has_memory && Clock::now() - start > kPatience) {
        Fail(ENOMEM, "{}: the checkpoints in use exceed {} MiB, {} times -o trees=", item->path,
             (kMostInUse * cache_.limit()) >> 20U, kMostInUse);
      }
      read_ended_.wait_for(lock, kPoll);
    }
    Cancellation::CheckPreempted(true);
  }
  return ReadTree(item);
}

TreeCache::Slot Store::ReadTree(const ItemPtr& item) {
  std::optional<StoredTree> stored;
  TreeCache::Slot slot = 0;
  const auto end = [&] {
    {
      const MutexLock lock(mutex_);
      item->is_being_read = false;
      --reads_;
      if (stored) item->slot = slot = cache_.Add(*std::move(stored));
      Release(item);
    }
    read_ended_.notify_all();
    DropExcess();
  };
  try {
    stored = ReadStoredTree({.folder = *item->folder,
                             .item = item->checkpoint,
                             .path = item->path,
                             .options = options_,
                             .read = read_,
                             .log = log_},
                            item->is_reported);
  } catch (...) {
    end();
    throw;
  }
  end();
  return slot;
}

void Store::DropExcess() {
  TreeCache::Excess excess;
  std::vector<std::pair<uint64_t, std::string>> in_use;
  {
    const MutexLock lock(mutex_);
    excess = cache_.TakeExcess();
    for (const StoredTree& dropped : excess.dropped) {
      const auto found = paths_.find(dropped.path);
      if (found != paths_.end()) Release(ItemPtr(found->second));
    }
    for (const std::string& path : excess.in_use) {
      const auto found = paths_.find(path);
      if (found == paths_.end() || found->second->parent == nullptr) continue;
      in_use.emplace_back(found->second->parent->number, found->second->name);
    }
  }
  if (!forget_entry_) return;
  for (auto& [directory, name] : in_use) forget_entry_(directory, std::move(name));
}

Namespace::Totals Store::totals() const {
  const MutexLock lock(mutex_);
  return {.bytes = cache_.size() + size_, .inodes = cache_.inode_count() + items_.size()};
}

std::string Store::Status() const {
  constexpr double kMiB = 1 << 20;
  const MutexLock lock(mutex_);
  return fmt::format("trees: {} in memory, {:.1f} of {:.1f} MiB, {} lookups held", cache_.count(),
                     static_cast<double>(cache_.memory()) / kMiB,
                     static_cast<double>(cache_.limit()) / kMiB, cache_.references() + references_);
}

}  // namespace ckptfs
