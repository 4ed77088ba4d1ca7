// From one pickle to the objects of a checkpoint.

#pragma once

#include <string_view>

#include "parser/checkpoint.h"
#include "parser/codec/pickle.h"
#include "parser/format/torch/context.h"

namespace ckptfs::torch {

// Runs `context.pickle`, which messages call `name`, and adds what it holds to the root and the
// warnings of `checkpoint`, and what it names to the globals of the reading. `resolve` may be
// empty. Throws Error, whose message begins with `name` if that is not empty.
void AddPickle(std::string_view name, Context& context, Checkpoint& checkpoint,
               const pickle::Resolve& resolve = {});

}  // namespace ckptfs::torch
