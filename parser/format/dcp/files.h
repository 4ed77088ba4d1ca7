// The files of a distributed checkpoint, and what was saved into them.

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
  // Opens the files of `folder` that have these names, each of which stays open. One that cannot be
  // had is the damage of what is in it. `names` must outlive it. Throws Error if there are too
  // many.
  Files(const Folder& folder, const Names& names);

  // Bytes in all of them.
  uint64_t size() const { return size_; }

  // The name of the file that a place is in.
  std::string_view NameOf(const Place& place) const { return names_.TextOf(place.file); }

  // Says that `items` will be read soon. Does not check their places.
  void Prefetch(std::span<const Item> items) const;

  // The bytes at `place`. Throws Error.
  Extent At(const Place& place) const;

 private:
  struct File {
    ByteSourcePtr source;  // Null if it cannot be had.
    std::string error;     // Why.
  };

  const Names& names_;
  std::vector<File> files_;
  uint64_t size_ = 0;
};

// Reads items, each of which is a complete file of torch.save in a place of its own. Belongs to one
// thread.
class Items {
 public:
  // Both must outlive it.
  Items(const Files& files, torch::Reading& reading);

  // Returns the object at `place`, whose tensors are members of that file, and adds to `warnings`
  // what is damaged in it. Throws Error: EFBIG if the budget is used up, which concerns all, else
  // what is wrong with this one.
  Content Read(const Place& place, std::vector<std::string>& warnings);

 private:
  const Files& files_;
  torch::Reading& reading_;
  uint64_t bytes_left_;  // That items may have.
};

}  // namespace ckptfs::dcp
