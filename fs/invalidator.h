// Invalidates the kernel's page cache of corrupt files.
//
// A checksum mismatch shows when the last byte of a file is read. By then the kernel has cached the
// others, and would continue to return them.

#pragma once

#include <fuse_lowlevel.h>

#include <condition_variable>
#include <cstdint>
#include <set>
#include <stop_token>
#include <vector>

#include "fs/tree.h"
#include "parser/base/mutex.h"

namespace ckptfs {

// Invalidates files that turn out to be corrupt. Thread-safe.
class Invalidator {
 public:
  // `tree` must outlive this.
  explicit Invalidator(const Tree& tree);

  // Adds the file `number`, of which a read has failed because it is corrupt. To be called after
  // the reply to the kernel. Returns immediately.
  void Add(uint64_t number);

  // Invalidates these files, and all others that are corrupt by then. To be called once, in a
  // thread that answers no requests: the kernel waits for the pending requests of the file. Returns
  // when `stop` is requested.
  void Run(fuse_session* session, const std::stop_token& stop);

 private:
  // Waits for a file. Returns 0 if `stop` is requested.
  uint64_t Take(const std::stop_token& stop);

  const Tree& tree_;
  std::vector<bool> is_known_;  // By inode: it was found to be corrupt. Only for Run.

  Mutex mutex_;
  std::condition_variable_any is_added_;
  std::set<uint64_t> added_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs
