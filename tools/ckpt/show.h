// ckpt show: the values of a tensor.

#pragma once

#include <string>

#include "tools/ckpt/model.h"

namespace ckptfs::ckpt {

// Prints the elements of the tensor `key`, or of a slice of it, their figures and a histogram. Throws
// Error: ENOTSUP if ckpt does not decode them.
void Show(const Model& model, const std::string& key);

}  // namespace ckptfs::ckpt
