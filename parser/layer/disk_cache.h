// What was fetched over a network, kept on a disk for the next mount.
//
// An object is kept in pieces of 64 MiB, each a sparse file with a checksum for every block (see
// disk_cache/segment.h). A block is here if its checksum says so; whatever else may have happened
// to the files - a crash in mid-write, a bad disk, a bug, a full file system - it is not here then,
// and is fetched again. So nothing is ever flushed, and nobody locks anything to read or to write:
// many processes can use one directory at the same time, because the bytes of one version of an
// object are the same for all of them.
//
// The checksum finds accidents, not forgeries. Who is trusted not to forge is the subject of
// disk_cache/directory.h.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parser/layer/block.h"

namespace ckptfs {

// The blocks of one version of one object. Block i is what starts at i * kBlockSize; the last one
// ends with the object. All methods may be called by several threads at once.
class DiskObject {
 public:
  virtual ~DiskObject() = default;

  // Reads blocks[i], which is block `first` + i and has its length, for all i. Returns which of
  // them were here; the memory of the others is undefined then. Failures of the disk are not told:
  // what cannot be read is not here.
  virtual std::vector<bool> Read(uint64_t first,
                                 std::span<const std::span<std::byte>> blocks) const = 0;

  // Keeps blocks[i], which is block `first` + i and has its length, for all i, unless that fails.
  virtual void Write(uint64_t first,
                     std::span<const std::span<const std::byte>> blocks) const noexcept = 0;
};

using DiskObjectPtr = std::shared_ptr<const DiskObject>;

// A directory of objects. Thread-safe.
class DiskCache {
 public:
  // Keeps up to `limit` bytes in `directory`, together with all other processes that use it with
  // that limit, and in any case leaves 5 % of the disk free. The directory is made, for us alone,
  // if it is not there. Throws Error if there cannot be such a directory, or others could change
  // what is in it.
  DiskCache(const std::string& directory, uint64_t limit);
  ~DiskCache();
  DiskCache(const DiskCache&) = delete;
  DiskCache& operator=(const DiskCache&) = delete;

  // Returns the object of `size` bytes which RemoteObject::identity() calls `identity`, which is
  // not empty. It may outlive this.
  DiskObjectPtr Open(std::string_view identity, uint64_t size) const;

 private:
  class Object;
  class Store;

  std::shared_ptr<Store> store_;
};

}  // namespace ckptfs
