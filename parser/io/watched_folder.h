// What of a folder a checkpoint has not used.

#pragma once

#include <ctime>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "parser/io/folder.h"

namespace ckptfs {

// A folder that remembers what was opened of it. Thread-safe, as folders are.
class WatchedFolder final : public Folder {
 public:
  explicit WatchedFolder(FolderPtr folder) : folder_(std::move(folder)) {}

  std::string name() const override { return folder_->name(); }
  std::vector<std::string> List() const override { return folder_->List(); }
  std::vector<std::string> ListFolders() const override { return folder_->ListFolders(); }
  bool is_remote() const override { return folder_->is_remote(); }
  timespec modified() const override { return folder_->modified(); }

  ByteSourcePtr Open(const std::string& name) const override {
    Remember(name);
    return folder_->Open(name);
  }

  std::shared_ptr<const Folder> OpenFolder(const std::string& name) const override {
    Remember(name);
    return folder_->OpenFolder(name);
  }

  // Of `files`, which are in this folder, those that were not opened and are called as checkpoints
  // are; and, with a slash, the folders with such files. Those of a remote folder are not looked
  // at, nor are more than a hundred. Throws nothing.
  std::vector<std::string> LeftOut(std::span<const std::string> files) const;

 private:
  void Remember(const std::string& name) const {
    const std::scoped_lock lock(mutex_);
    opened_.insert(name);
  }

  const FolderPtr folder_;
  mutable std::mutex mutex_;
  mutable std::set<std::string> opened_;
};

}  // namespace ckptfs
