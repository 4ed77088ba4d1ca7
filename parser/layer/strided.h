// The elements of a tensor that does not lie densely in its storage.

#pragma once

#include <cstdint>
#include <vector>

#include "parser/byte_source.h"
#include "parser/dtype.h"

namespace ckptfs {

// How the elements of a tensor lie in its storage.
struct View {
  Dtype dtype = Dtype::kOpaque;
  std::vector<uint64_t> shape;   // In elements, like all that follows.
  std::vector<uint64_t> stride;  // One for each dimension.
  bool is_big_endian = false;    // The stored elements are.
  bool is_conjugated = false;    // The tensor is the conjugate of what is stored.
  bool is_negated = false;       // The tensor is the negative of what is stored.
};

// Whether the elements are dense, in C order and stored as the tensor has them, so that no gathering
// is needed. Dimensions of one element may have any stride; a tensor without elements is dense.
bool IsDense(const View& view);

// Bytes from the first element to the end of the last: 0 if there are none. Throws Error(EOVERFLOW).
uint64_t ReachOf(const View& view);

// Returns the elements of `view` in `storage`, which starts with its first element, as a dense
// little-endian tensor in C order. Nothing is materialised: a read gathers what it needs, rows at a
// time where rows are contiguous, else through a panel of a few MiB of which all strided sources
// together keep a few. Precondition: ReachOf(view) <= storage.length.
ByteSourcePtr MakeStrided(Extent storage, View view);

}  // namespace ckptfs
