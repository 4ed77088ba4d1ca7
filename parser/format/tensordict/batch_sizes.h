// Batch sizes that tensordict cannot load.

#pragma once

#include "parser/base/budget.h"
#include "parser/checkpoint.h"

namespace ckptfs::tensordict {

// Takes their batch sizes from the TensorDicts that have a composite tensor somewhere in them, and
// annotates them with "batch_size". On a mount a composite tensor is a TensorDict of its parts, and
// tensordict gives what is in a TensorDict the same batch size, which parts like offsets do not
// have: it could load nothing of the mount. Throws Error(EFBIG).
void DropBatchSizesAroundComposites(Group& root, Budget& budget);

}  // namespace ckptfs::tensordict
