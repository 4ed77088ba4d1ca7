// Invalidates the kernel's page cache of corrupt files.
//
// A checksum mismatch shows when the last byte of a file is read. By then the kernel has cached the
// others, and would continue to return them.

#pragma once

#include <fuse_lowlevel.h>

#include <condition_variable>
#include <cstdint>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <tuple>

#include "fs/namespace.h"
#include "parser/base/mutex.h"

namespace ckptfs {

// Invalidates files that turn out to be corrupt, and directories that the kernel should forget.
// Thread-safe.
class Invalidator {
 public:
  // `files` must outlive this.
  explicit Invalidator(const Namespace& files) : files_(files) {}

  // Adds the file `number`, of which a read has failed because it is corrupt. To be called after
  // the reply to the kernel. Returns immediately.
  void Add(uint64_t number);

  // Makes the kernel forget the entry `name` of a directory and all below it that is not in use.
  // Returns immediately.
  void AddEntry(uint64_t directory, std::string name);

  // Invalidates these, and all other files of the same checkpoint that are corrupt by then. To be
  // called once, in a thread that answers no requests: the kernel waits for the pending requests of
  // the file. Returns when `stop` is requested.
  void Run(fuse_session* session, const std::stop_token& stop);

 private:
  // An inode, or an entry of a directory.
  struct Item {
    uint64_t number = 0;
    std::string name;  // Empty: the inode itself.

    friend bool operator<(const Item& a, const Item& b) {
      return std::tie(a.number, a.name) < std::tie(b.number, b.name);
    }
  };

  // Waits for an item. Returns nothing if `stop` is requested.
  std::optional<Item> Take(const std::stop_token& stop);

  void InvalidateCorrupt(fuse_session* session, uint64_t number, const std::stop_token& stop);

  const Namespace& files_;
  std::set<uint64_t> known_;  // Files that were found to be corrupt. Only for Run.

  Mutex mutex_;
  std::condition_variable_any is_added_;
  std::set<Item> added_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs
