// Caches fetched blocks on a disk between mounts.
//
// An object is divided into segments of 4 MiB, each a sparse file with a checksum for every block
// (see disk_cache/segment.h). A block is cached if its checksum matches. After a crash in the
// middle of a write, a disk error, on a full file system or after a bug it does not match, and the
// block is fetched again. So nothing is flushed, and reads and writes need no lock: many processes
// can use one directory at the same time, because the bytes of one version of an object are the
// same for all of them.
//
// Segments are evicted in the order of their last use, with one exception: those of objects that
// this process has open, if they were used in the last hour, are not evicted for other segments. An
// object larger than the cache is mostly read from its beginning to its end, again and again; each
// pass would otherwise evict every segment before the next pass reaches it.
//
// The checksum detects accidents, not forgeries. disk_cache/directory.h defines which users are
// trusted.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parser/io/remote_object.h"

namespace ckptfs {

// The blocks of one version of one object. Block i starts at i * kBlockSize; the last one ends with
// the object. All methods may be called by several threads at once.
class DiskObject {
 public:
  virtual ~DiskObject() = default;

  // Reads block `first` + i to blocks[i], which has its length, for all i. Returns which of them
  // were cached; the memory of the others is undefined. After a disk error a block counts as not
  // cached.
  virtual std::vector<bool> Read(uint64_t first,
                                 std::span<const std::span<std::byte>> blocks) const = 0;

  // Caches blocks[i] as block `first` + i, whose length it has, for all i, unless that fails.
  virtual void Write(uint64_t first,
                     std::span<const std::span<const std::byte>> blocks) const noexcept = 0;
};

using DiskObjectPtr = std::shared_ptr<const DiskObject>;

// A directory of objects. Thread-safe.
class DiskCache {
 public:
  // Keeps up to `limit` bytes in `directory`, together with all other processes that use it with
  // that limit, and always leaves 5 % of the disk free. Creates a missing directory with mode 0700.
  // Throws Error if that fails, or if untrusted users could write to the directory.
  DiskCache(const std::string& directory, uint64_t limit);
  ~DiskCache();
  DiskCache(const DiskCache&) = delete;
  DiskCache& operator=(const DiskCache&) = delete;

  // Returns the object of `size` bytes with this identity (RemoteObject::identity()), which is not
  // empty. It may outlive this.
  DiskObjectPtr Open(std::string_view identity, uint64_t size) const;

 private:
  class Object;
  class Store;

  std::shared_ptr<Store> store_;
};

}  // namespace ckptfs
