// The types of elements, as files name them.
//
// A type that NumPy has is named as NumPy does in its array interface: byte order, kind, size:
// "<f4". Others are bytes of that size to NumPy, and PyTorch's name stands behind a NUL:
// "<V2\0torch.bfloat16". Releases before 2.0 also wrote arrays of NumPy that no tensor can be:
// texts, dates, numbers of the other byte order.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "parser/base/dtype.h"

namespace ckptfs::tensorizer {

struct StoredDtype {
  Dtype dtype = Dtype::kOpaque;  // kOpaque: shown as the bytes that they are.
  std::string foreign;           // What a kOpaque one is called.
  std::optional<uint64_t> size;  // Bytes of an element, if the name tells.
  bool is_object = false;        // Elements are addresses in a memory that is long gone.
};

// Understands any text.
StoredDtype ReadDtype(std::string_view stored);

}  // namespace ckptfs::tensorizer
