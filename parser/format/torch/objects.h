// From the objects of a pickle to a checkpoint: which of them are groups, tensors and values.

#pragma once

#include "parser/checkpoint.h"
#include "parser/codec/pickle.h"
#include "parser/format/torch/reader.h"

namespace ckptfs::torch {

// Fills in the root and the warnings of `checkpoint` with what `root` holds. Containers and objects
// that have a tensor somewhere in them become groups, all others values; what contains itself is
// cut there. Damage that concerns one tensor is its error and a warning.
//
// Throws Error: EBADMSG if there are tensors and not one of them can be read, EFBIG if objects lie
// in one another more than kMaxDepth deep or exceed the budget.
void AddObjects(const pickle::Value& root, Context& context, Checkpoint& checkpoint);

}  // namespace ckptfs::torch
