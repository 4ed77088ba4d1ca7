// The tensor that a command line names, or a slice of it, as in NumPy: "w[10:20, ::2, ..., -1]".

#pragma once

#include <string>

#include "parser/checkpoint.h"
#include "tools/ckpt/model.h"

namespace ckptfs::ckpt {

enum class Elements {
  kStored,
  kNumbers,  // See Dequantized.
};

// Returns the tensor `key` of `model`, or a slice of it: "h.0.weight[:10]". A tensor whose key ends
// with brackets comes first. Throws Error: ENOENT if it is not found, EINVAL if several have the
// key or the slice does not fit; or that of the tensor if it cannot be read.
Tensor SelectedTensor(const Model& model, const std::string& key, Elements elements);

}  // namespace ckptfs::ckpt
