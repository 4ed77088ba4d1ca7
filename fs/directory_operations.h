// The FUSE callbacks for directories, and the table of the open ones. A directory is listed once
// while it is open, however many requests that takes.

#pragma once

#include <fuse_lowlevel.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "fs/namespace.h"
#include "parser/base/mutex.h"

namespace ckptfs {

struct OpenDirectory {
  Mutex mutex;  // The kernel sends one request at a time, but to any thread.
  std::optional<DirectoryView> view GUARDED_BY(mutex);
};

// Thread-safe.
class OpenDirectories {
 public:
  // Returns the handle of a newly opened directory, which is not 0.
  uint64_t Add() {
    const MutexLock lock(mutex_);
    directories_.emplace(++last_, std::make_shared<OpenDirectory>());
    return last_;
  }

  // Returns null if there is no such handle.
  std::shared_ptr<OpenDirectory> Find(uint64_t handle) const {
    const MutexLock lock(mutex_);
    const auto found = directories_.find(handle);
    return found == directories_.end() ? nullptr : found->second;
  }

  void Remove(uint64_t handle) {
    std::shared_ptr<OpenDirectory> removed;  // Destroyed without the lock.
    const MutexLock lock(mutex_);
    const auto found = directories_.find(handle);
    if (found == directories_.end()) return;
    removed = std::move(found->second);
    directories_.erase(found);
  }

 private:
  mutable Mutex mutex_;
  std::unordered_map<uint64_t, std::shared_ptr<OpenDirectory>> directories_ GUARDED_BY(mutex_);
  uint64_t last_ GUARDED_BY(mutex_) = 0;
};

void OpenDirOp(fuse_req_t req, fuse_ino_t number, fuse_file_info* file);
void ReleaseDirOp(fuse_req_t req, fuse_ino_t number, fuse_file_info* file);
void ReadDirOp(fuse_req_t req, fuse_ino_t number, size_t size, off_t off, fuse_file_info* file);
void ReadDirPlusOp(fuse_req_t req, fuse_ino_t number, size_t size, off_t off, fuse_file_info* file);

}  // namespace ckptfs
