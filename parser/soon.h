// Many small places of a source that are going to be read one after another.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "parser/byte_source.h"

namespace ckptfs {

// Tells a source of places before they are read: not of all at once, which might be more than it
// keeps, but of the next ones. Costs nothing where the source is not remote. Belongs to one thread.
class Soon {
 public:
  // `source` must outlive this.
  explicit Soon(const ByteSource& source) : source_(source), is_needed_(source.is_remote()) {}

  // Adds a place, which lies within the source and not before the last one that was added.
  void Add(ByteRange range) {
    if (is_needed_ && range.length > 0) ranges_.push_back(range);
  }

  // To be called before what is at `offset` is read; offsets may only grow.
  void Reach(uint64_t offset);

 private:
  const ByteSource& source_;
  const bool is_needed_;
  std::vector<ByteRange> ranges_;
  size_t told_ = 0;  // Of these.
};

}  // namespace ckptfs
