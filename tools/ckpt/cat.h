// ckpt cat: the bytes of a tensor.

#pragma once

#include <string>

#include "tools/ckpt/model.h"

namespace ckptfs::ckpt {

// Writes the tensor `key`, which may end with a slice in brackets, to standard output: its bytes, or
// `as_npy` a file of NumPy. Throws Error: ENOENT if there is no such tensor.
void Dump(const Model& model, const std::string& key, bool as_npy);

}  // namespace ckptfs::ckpt
