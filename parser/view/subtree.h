// A part of a checkpoint as a checkpoint of its own.

#pragma once

#include <string_view>

#include "parser/checkpoint.h"

namespace ckptfs {

// Makes the group at `path`, keys with slashes between them, the root of `checkpoint`. Where no member
// has a key, but dotted keys begin with it, these are the group. Throws Error(ENOENT) that names the
// keys that exist if there is no such group.
void TakeSubtree(Checkpoint& checkpoint, std::string_view path);

}  // namespace ckptfs
