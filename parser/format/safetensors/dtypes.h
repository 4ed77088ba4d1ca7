// The types of elements that safetensors has.

#pragma once

#include <string_view>

#include "parser/base/dtype.h"

namespace ckptfs::safetensors {

struct StoredDtype {
  std::string_view name;  // In the header: "BF16".
  unsigned bits;          // Of an element.
  Dtype dtype;            // kOpaque: PyTorch has none.
};

// Returns null if we do not know it.
const StoredDtype* StoredDtypeNamed(std::string_view name);

}  // namespace ckptfs::safetensors
