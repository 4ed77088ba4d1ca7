// Taking back what the kernel has been given.
//
// That a file is not what it should be shows when the last byte of it is read: by then the kernel
// has cached the others, and would go on handing them out.

#pragma once

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <set>
#include <stop_token>
#include <vector>

#include "fs/tree.h"

namespace ckptfs {

// Makes the kernel forget the bytes of files that have turned out wrong. Thread-safe.
class Invalidator {
 public:
  // `tree` must outlive this.
  explicit Invalidator(const Tree& tree);

  // Says that a read of the file `number` has failed because it is wrong. To be called when the
  // kernel has been told so. Returns at once.
  void Add(uint64_t number);

  // Makes the kernel forget what it has of that file, and of all others that have turned out wrong
  // with it. To be called once, in a thread that answers no requests: the kernel waits until those
  // for the file are answered. Returns when `stop` wants it.
  void Run(fuse_session* session, const std::stop_token& stop);

 private:
  // Waits for a file. Returns 0 if `stop` wants it.
  uint64_t Take(const std::stop_token& stop);

  const Tree& tree_;
  std::vector<bool> is_known_;  // By inode: it was found to be wrong. Only for Run.

  std::mutex mutex_;
  std::condition_variable_any is_added_;
  std::set<uint64_t> added_;
};

}  // namespace ckptfs
