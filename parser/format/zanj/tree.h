// From the JSON of ZANJ to the tree of a checkpoint.

#pragma once

#include "parser/checkpoint.h"
#include "parser/codec/json_document.h"
#include "parser/format/zanj/externals.h"

namespace ckptfs::zanj {

// Puts what `root` is into the root of `checkpoint`. Arrays and tables that are damaged have an
// error, and a warning. Throws Error(EFBIG).
void AddTree(json::Node root, Externals& externals, Checkpoint& checkpoint);

}  // namespace ckptfs::zanj
