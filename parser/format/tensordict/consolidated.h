// Files written by TensorDict.consolidate:
//
//   [elements of all tensors, with padding] [metadata, JSON] [length of the metadata, 8 bytes]
//
// The JSON has a level for each collection:
//
//   {"cls": "TensorDict",
//    "leaves": {"weight": ["torch.float32", [4, 3], 0, 48, 0]},    type, shape, begin, end, padding
//    "non_tensors": {"step": [5, [], null]},                       value, batch size, device
//    "cls_metadata": {"device": null, "names": [], "batch_size": [], "is_locked": false},
//    "layer": {...}}                                            another level, as any other member

#pragma once

#include "parser/base/budget.h"
#include "parser/checkpoint.h"
#include "parser/io/byte_source.h"

namespace ckptfs::tensordict {

// Reads such a file. A corrupt tensor or collection does not affect the others. Throws Error.
Checkpoint ReadConsolidated(const ByteSourcePtr& file, Budget& budget);

}  // namespace ckptfs::tensordict
