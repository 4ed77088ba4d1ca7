// Folders that record which of their files a checkpoint opens.

#pragma once

#include <ctime>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/mutex.h"
#include "parser/io/folder.h"

namespace ckptfs {

// A folder that records what was opened. Thread-safe, as folders are.
class WatchedFolder final : public Folder {
 public:
  explicit WatchedFolder(FolderPtr folder) : folder_(std::move(folder)) {}

  std::string name() const override { return folder_->name(); }
  std::vector<std::string> List() const override { return folder_->List(); }
  std::vector<std::string> ListFolders() const override { return folder_->ListFolders(); }
  bool is_remote() const override { return folder_->is_remote(); }
  timespec modified() const override { return folder_->modified(); }

  ByteSourcePtr Open(const std::string& name) const override {
    Record(name);
    return folder_->Open(name);
  }

  std::shared_ptr<const Folder> OpenFolder(const std::string& name) const override {
    Record(name);
    return folder_->OpenFolder(name);
  }

  // Returns those of `files`, all of this folder, that were not opened and have names of
  // checkpoints; and, with a slash, the subfolders with such files. Does not look into remote
  // subfolders, nor into more than a hundred. Throws nothing.
  std::vector<std::string> LeftOut(std::span<const std::string> files) const;

 private:
  void Record(const std::string& name) const {
    const MutexLock lock(mutex_);
    opened_.insert(name);
  }

  const FolderPtr folder_;
  mutable Mutex mutex_;
  mutable std::set<std::string> opened_ GUARDED_BY(mutex_);
};

// Returns `folder`, of which each file that is opened is added to `budget`; null if that is null.
// `budget` must outlive the result.
FolderPtr MakeCountedFolder(FolderPtr folder, Budget& budget);

}  // namespace ckptfs
