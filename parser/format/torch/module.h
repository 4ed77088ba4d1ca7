// torch.nn.Module, whatever its class: an object whose state has the tables _parameters, _buffers
// and _modules. A torch.fx.GraphModule gives such a dict to a function; what torch.compile has made
// of a module has that module as `_orig_mod`.

#pragma once

#include "parser/format/torch/children.h"

namespace ckptfs::torch {

bool IsModule(const pickle::Object& object);

// Its class, where that is not what is called: empty if it is.
std::string_view ClassOfModule(const pickle::Object& object);

// Adds what is in a module, by the names that state_dict() has: those in the three tables are the
// module's own. Other attributes follow, but for the machinery that is idle. Precondition:
// IsModule.
void AddModule(Children& children, const pickle::Object& object, Budget& budget);

}  // namespace ckptfs::torch
