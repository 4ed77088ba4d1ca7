// Views: a checkpoint or a tensor as a file of another format. The file has a header in memory, and
// its data are the extents of the tensors: nothing is copied or converted.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "parser/base/budget.h"
#include "parser/checkpoint.h"
#include "parser/io/byte_source.h"

namespace ckptfs {

struct SafetensorsView {
  ByteSourcePtr file;                 // Null if its header would exceed the limit of the format.
  std::vector<std::string> left_out;  // The keys of tensors that the format cannot have.
};

// Returns all tensors of `checkpoint` as a safetensors file. Keys are joined by dots; strings are
// its metadata. Tensors lie in the order of their sources, larger elements first, so that each is
// aligned. Tied tensors are there under each of their keys. Composite and nested tensors, unknown
// dtypes, shapes beyond 2^64 bits and keys that are not UTF-8 or occur twice are left out; a tensor
// with an error cannot be read. Charges `budget` for the header. Throws Error(EFBIG).
SafetensorsView MakeSafetensorsView(const Checkpoint& checkpoint, Budget& budget);

// Returns a tensor as an .npy file; null if NumPy does not have its dtype or cannot count
// its elements. See
// https://numpy.org/neps/nep-0001-npy-format.html.
ByteSourcePtr MakeNpyView(const Tensor& tensor);

}  // namespace ckptfs
