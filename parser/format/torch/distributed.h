// Tensors that are distributed over many processes; a checkpoint contains the part of one.

#pragma once

#include "parser/format/torch/composite.h"

namespace ckptfs::torch {

// Adds the mesh and placements of a DTensor, its local part, and its recipe, for a tensor
// of `shape` and `stride`. Throws Error(EBADMSG).
void ComposeDTensor(const pickle::Value& state, const std::vector<uint64_t>& shape,
                    const std::vector<uint64_t>& stride, Context& context, Composite& composite);

// Adds the local shards of a ShardedTensor, and the positions of all shards. Throws Error: EBADMSG,
// EFBIG.
void ComposeShardedTensor(const pickle::Value& state, Budget& budget, Composite& composite);

}  // namespace ckptfs::torch
