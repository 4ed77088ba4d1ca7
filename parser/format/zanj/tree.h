// The tree of a checkpoint from ZANJ's JSON.

#pragma once

#include "parser/checkpoint.h"
#include "parser/codec/json_document.h"
#include "parser/format/zanj/zip.h"

namespace ckptfs::zanj {

// Adds the members of `root` to the root of `checkpoint`. A corrupt array or table gets an error
// and a warning. Throws Error(EFBIG).
void AddTree(json::Node root, Externals& externals, Checkpoint& checkpoint);

}  // namespace ckptfs::zanj
