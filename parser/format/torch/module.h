// torch.nn.Module, whatever its class: an object whose state has the tables _parameters, _buffers
// and _modules.

#pragma once

#include "parser/format/torch/children.h"

namespace ckptfs::torch {

bool IsModule(const pickle::Object& object);

// Adds what is in a module, by the names that state_dict() has: those in the three tables are the
// module's own. Other attributes follow, but for the machinery that is idle. Precondition:
// IsModule.
void AddModule(Children& children, const pickle::Object& object, Budget& budget);

}  // namespace ckptfs::torch
