// Arrays of NumPy as tensors, from any file that contains them.
//
// A tensor is in C order and little-endian. Elements that PyTorch has no type for (texts, times,
// structures) are bytes; the shape then has one more dimension, their size.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "parser/checkpoint.h"
#include "parser/codec/npy.h"
#include "parser/format/archive/record.h"
#include "parser/layer/block_cache.h"

namespace ckptfs::numpy {

// An array without its bytes.
struct Layout {
  npy::Type type;
  std::vector<uint64_t> shape;
  bool is_fortran = false;
};

// Returns the number of elements of an array. Throws Error(EOVERFLOW).
uint64_t CountOf(const std::vector<uint64_t>& shape);

// Sets the type, the shape and the length of a tensor. Throws Error: ENOTSUP if the elements have
// no bytes or if the tensor has too many dimensions, EOVERFLOW.
void SetType(const Layout& layout, Tensor& tensor);

// Sets the location of the bytes of a tensor, after SetType. `stored` is the record of the
// elements. Throws Error: that of `stored`, and EBADMSG if its length differs from that of the
// tensor.
void SetBytes(const Layout& layout, const Record& stored, const std::shared_ptr<BlockCache>& blocks,
              Tensor& tensor);

// Returns the bytes after the header of the array that `saved`, a file or a member, begins with.
Record ElementsOf(const npy::ArrayHeader& header, const Record& saved);

// Fills in the array that `saved`, a file or a member, begins with `header`: type, bytes and
// annotations. Bytes after its elements are ignored and annotated. The known properties of the
// array are set even if this throws Error: as the functions above, and EBADMSG if the data is
// truncated.
void FillSaved(npy::ArrayHeader header, const Record& saved,
               const std::shared_ptr<BlockCache>& blocks, Tensor& tensor);

}  // namespace ckptfs::numpy
