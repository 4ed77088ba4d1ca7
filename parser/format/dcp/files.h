// The files of a distributed checkpoint and the items in them.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "parser/checkpoint.h"
#include "parser/format/dcp/metadata.h"
#include "parser/format/torch/reader.h"
#include "parser/io/byte_source.h"
#include "parser/io/folder.h"

namespace ckptfs::dcp {

class Files {
 public:
  // Opens the files of `folder` with these names and keeps them open. If a file cannot be opened,
  // reading its items fails. `names` must outlive this. Throws Error if there are too many files.
  Files(const Folder& folder, const StringTable& names);

  // Returns the size of all files, in bytes.
  uint64_t size() const { return size_; }

  // Returns the name of the file at `place`.
  std::string_view NameOf(const ChunkLocation& place) const { return names_.TextOf(place.file); }

  // Prefetches `items`. Does not check their locations.
  void Prefetch(std::span<const Item> items) const;

  // Returns the bytes at `place`. Throws Error.
  Extent At(const ChunkLocation& place) const;

 private:
  struct File {
    ByteSourcePtr source;        // Null if it cannot be opened.
    std::optional<Error> error;  // Of opening it.
  };

  const StringTable& names_;
  std::vector<File> files_;
  uint64_t size_ = 0;
};

// Reads items, each of which is a complete file of torch.save. Belongs to one thread.
class ItemReader {
 public:
  // Both must outlive it.
  ItemReader(const Files& files, torch::Reading& reading);

  // Returns the object at `place`, whose tensors are members of that file, and adds warnings about
  // corrupt parts of it. Throws Error: EFBIG if the budget is exhausted, else the error of this
  // item.
  Content Read(const ChunkLocation& place, std::vector<std::string>& warnings);

 private:
  const Files& files_;
  torch::Reading& reading_;
  uint64_t bytes_left_;  // Limit for the items that follow.
};

}  // namespace ckptfs::dcp
