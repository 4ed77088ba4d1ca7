// The elements of a tensor that is not dense in its storage.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "parser/base/dtype.h"
#include "parser/io/byte_source.h"
#include "parser/layer/block_cache.h"

namespace ckptfs {

// The layout of the elements of a tensor in its storage. If shape and stride differ in the number
// of dimensions, the functions below throw Error(EBADMSG).
struct View {
  Dtype dtype = Dtype::kOpaque;
  std::vector<uint64_t> shape;   // In elements, as is the stride.
  std::vector<uint64_t> stride;  // One for each dimension.
  bool is_big_endian = false;    // The stored elements are.
  bool is_conjugated = false;    // The tensor is the conjugate of the stored elements.
  bool is_negated = false;       // The tensor is the negative of the stored elements.
};

// Whether the elements are dense, in C order and need no conversion, so that no gathering is
// needed. Dimensions of one element may have any stride; a tensor without elements is dense.
bool IsDense(const View& view);

// Returns the number of bytes from the first element to the end of the last; 0 without elements.
// Throws Error: EOVERFLOW from 2^63 bytes on, ENOTSUP if several elements share a byte and are not
// dense.
uint64_t ReachOf(const View& view);

// Returns the elements of `view` in `storage`, which starts with its first element, as a dense
// little-endian tensor in C order. Nothing is materialised: a read gathers its elements, row by row
// if rows are contiguous, else in blocks of a few MiB that `blocks` caches until they are read. All
// strided sources of a checkpoint share one cache; without one, each read gathers for itself, which
// is slower.
//
// Throws Error: EBADMSG if storage.length < ReachOf(view), EOVERFLOW if the tensor is larger than
// 2^63 bytes, ENOTSUP as ReachOf does, and for negatives of a type that has none (bool).
ByteSourcePtr MakeStrided(Extent storage, const View& view,
                          std::shared_ptr<BlockCache> blocks = nullptr);

}  // namespace ckptfs
