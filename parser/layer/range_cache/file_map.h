// Where the files of the mount are in the remote objects.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "parser/io/byte_source.h"

namespace ckptfs {

// The files of all objects, ordered by object and offset. Files that overlap, as views of one
// storage do, are merged into one. Guarded by the lock of the cache.
class FileMap {
 public:
  struct File {
    uint32_t object = 0;
    ByteRange range;
    uint64_t end() const { return range.offset + range.length; }
    friend bool operator==(const File&, const File&) = default;
  };

  // Adds an object of `size` bytes; objects are numbered from 0.
  void AddObject(uint64_t size) { sizes_.push_back(size); }

  // Adds a file. Indices of files change.
  void AddFile(uint32_t object, ByteRange range);

  // Whether an object has files. It has none while it is being opened.
  bool HasFiles(uint32_t object) const { return object < has_files_.size() && has_files_[object]; }

  size_t count();
  const File& file(size_t index) const { return files_[index]; }
  uint64_t size_of(uint32_t object) const { return sizes_[object]; }

  // Changes whenever indices of files change.
  uint64_t version() const { return version_; }

  // Returns the index of the file that contains `offset`, else of the next one in this or a later
  // object; count() if there is none.
  size_t Find(uint32_t object, uint64_t offset);

  // Returns the end of the file that contains `offset`, or of the gap before the next one.
  uint64_t EndAt(uint32_t object, uint64_t offset);

  // Returns the begin of the file that ends at or contains `end`, or of the gap before the next
  // one.
  uint64_t BeginAt(uint32_t object, uint64_t end);

  // Whether a file ends at `offset`.
  bool IsEnd(uint32_t object, uint64_t offset);

  // Whether a file begins at `offset`, or shortly behind it, after its header.
  bool IsBegin(uint32_t object, uint64_t offset);

 private:
  void Sort();

  std::vector<uint64_t> sizes_;  // Of the objects, in bytes.
  std::vector<bool> has_files_;
  std::vector<File> files_;  // In order, without overlaps, if is_sorted_.
  bool is_sorted_ = true;
  uint64_t version_ = 0;
};

}  // namespace ckptfs
