// ckpt info: a checkpoint as a whole.

#pragma once

#include "tools/ckpt/model.h"
#include "tools/ckpt/output.h"

namespace ckptfs::ckpt {

// Prints its format, tensors, ties, annotations, values, and what loading it would import. `format` is
// kText or kJson. Throws Error.
void Describe(const Model& model, OutputFormat format);

}  // namespace ckptfs::ckpt
