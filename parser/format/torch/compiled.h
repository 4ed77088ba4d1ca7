// Archives of AOTInductor, which contain compiled models.

#pragma once

#include "parser/checkpoint.h"
#include "parser/format/torch/archive.h"
#include "parser/format/torch/reader.h"

namespace ckptfs::torch {

// Adds the weights of each compiled model, as its member "weights". Returns whether there are any.
// Throws Error.
bool AddCompiled(const Archive& archive, bool is_big_endian, Reading& reading,
                 Checkpoint& checkpoint);

}  // namespace ckptfs::torch
