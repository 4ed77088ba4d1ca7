// The elements of a tensor that does not lie densely in its storage.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "parser/base/dtype.h"
#include "parser/io/byte_source.h"
#include "parser/layer/block_cache.h"

namespace ckptfs {

// How the elements of a tensor lie in its storage. Where shape and stride have not the same number
// of dimensions, the functions below throw Error(EBADMSG).
struct View {
  Dtype dtype = Dtype::kOpaque;
  std::vector<uint64_t> shape;   // In elements, like all that follows.
  std::vector<uint64_t> stride;  // One for each dimension.
  bool is_big_endian = false;    // The stored elements are.
  bool is_conjugated = false;    // The tensor is the conjugate of what is stored.
  bool is_negated = false;       // The tensor is the negative of what is stored.
};

// Whether the elements are dense, in C order and stored as the tensor has them, so that no
// gathering is needed. Dimensions of one element may have any stride; a tensor without elements is
// dense.
bool IsDense(const View& view);

// Bytes from the first element to the end of the last: 0 if there are none. Throws Error: EOVERFLOW
// if there are 2^63 of them or more, ENOTSUP if several elements share a byte and are not dense.
uint64_t ReachOf(const View& view);

// Returns the elements of `view` in `storage`, which starts with its first element, as a dense
// little-endian tensor in C order. Nothing is materialised: a read gathers what it needs, row by
// row where rows are contiguous, else in blocks of a few MiB that `blocks` keeps until they are
// read. All strided sources of a checkpoint share one cache; without one, each read gathers for
// itself, which is right but slow where a block would have served many reads.
//
// Throws Error: EBADMSG if storage.length < ReachOf(view), EOVERFLOW if the tensor is larger than
// 2^63 bytes, ENOTSUP as ReachOf does and if negatives are asked for of a type that has none
// (bool).
ByteSourcePtr MakeStrided(Extent storage, const View& view,
                          std::shared_ptr<BlockCache> blocks = nullptr);

}  // namespace ckptfs
