// Converts the objects of a pickle to groups, tensors and values of a checkpoint.

#pragma once

#include "parser/checkpoint.h"
#include "parser/codec/pickle.h"
#include "parser/format/torch/reader.h"

namespace ckptfs::torch {

// Fills in the root and the warnings of `checkpoint` from `root`. Containers and objects that
// contain a tensor become groups, all others values. An object that contains itself is shown as
// "..." there. A corrupt tensor gets an error and a warning.
//
// Throws Error: EBADMSG if there are tensors and none of them can be read, EFBIG if objects are
// nested more than kMaxDepth levels deep or exceed the budget.
void AddObjects(const pickle::Value& root, Context& context, Checkpoint& checkpoint);

}  // namespace ckptfs::torch
