// Arrays of NumPy as tensors, wherever they were saved.
//
// A tensor is in C order and little-endian. Elements that PyTorch has no type for (texts, times,
// structures) are bytes; the shape then has one dimension more, which is their size.

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

// How many elements an array has. Throws Error(EOVERFLOW).
uint64_t CountOf(const std::vector<uint64_t>& shape);

// Fills in what the tensor is, and the length of its data. Throws Error: ENOTSUP if the elements
// have no bytes or if they and the shape together have more dimensions than a tensor can,
// EOVERFLOW.
void SetType(const Layout& layout, Tensor& tensor);

// Fills in where the bytes of the tensor are, which SetType has been called for. `stored` is what
// the array has in its file. Throws Error: that of `stored`, and EBADMSG if its length is not the
// one of the tensor's data.
void SetBytes(const Layout& layout, const Record& stored, const std::shared_ptr<BlockCache>& blocks,
              Tensor& tensor);

// Returns the bytes after the header of the array that `saved`, a file or a member, begins with.
Record ElementsOf(const npy::ArrayHeader& header, const Record& saved);

// Fills in the array that `saved`, a file or a member, begins with `header`: type, bytes and
// annotations. Bytes after its elements are ignored and annotated. The known properties of the
// array are set also when this throws Error: as the above, and EBADMSG if there are too few bytes.
void FillSaved(npy::ArrayHeader header, const Record& saved,
               const std::shared_ptr<BlockCache>& blocks, Tensor& tensor);

}  // namespace ckptfs::numpy
