// A part of a checkpoint as a checkpoint of its own.

#pragma once

#include <string_view>

#include "parser/checkpoint.h"

namespace ckptfs {

// Makes the group at `path`, keys separated by slashes, the root of `checkpoint`. If no member has
// a key, but dotted keys begin with it, the group consists of these. Throws Error(ENOENT) that
// names the keys that exist if there is no such group.
void TakeSubtree(Checkpoint& checkpoint, std::string_view path);

}  // namespace ckptfs
