// What is going to be read of a source, told to it before: then it is fetched side by side, or at
// once, and not piece by piece.

#pragma once

#include <algorithm>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "parser/io/byte_source.h"

namespace ckptfs {

// Tells a source of many small places: not of all at once, which might be more than it keeps, but
// of the next ones. Costs nothing where the source is not remote. Belongs to one thread.
class Soon {
 public:
  // `source` must outlive this.
  explicit Soon(const ByteSource& source) : source_(source), is_needed_(source.is_remote()) {}

  // Adds a place, which lies within the source. One that lies before the last one is left out.
  void Add(ByteRange range);

  // To be called before what is at `offset` is read; offsets may only grow.
  void Reach(uint64_t offset);

 private:
  const ByteSource& source_;
  const bool is_needed_;
  std::vector<ByteRange> ranges_;
  size_t told_ = 0;  // Of these.
};

// Tells a source of what is read forward from one place on, nobody knows how far: of the more, the
// farther it has gone. Belongs to one thread.
class Onward {
 public:
  // `source` must outlive this.
  Onward(const ByteSource& source, uint64_t begin)
      : source_(source), told_(begin + std::min(kFirst, source.size() - begin)) {}

  // To be called before what is at `offset` is read.
  void Reach(uint64_t offset);

 private:
  static constexpr uint64_t kFirst = uint64_t{64} << 10U;  // Bytes that a read brings along anyway.

  const ByteSource& source_;
  uint64_t told_;           // All before it has been told of.
  uint64_t next_ = kFirst;  // Bytes that were told of last.
};

// Tells `source` that both of its ends will be read, as they are of a file whose format is not
// known.
void ReadEndsSoon(const ByteSource& source);

}  // namespace ckptfs
