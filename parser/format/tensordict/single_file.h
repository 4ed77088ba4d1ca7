// The single files that TensorDict.consolidate writes:
//
//   [elements of all tensors, with padding] [metadata, JSON] [length of the metadata, 8 bytes]
//
// The JSON has a level for each collection:
//
//   {"cls": "TensorDict",
//    "leaves": {"weight": ["torch.float32", [4, 3], 0, 48, 0]},    type, shape, begin, end, padding
//    "non_tensors": {"step": [5, [], null]},                       value, batch size, device
//    "cls_metadata": {"device": null, "names": [], "batch_size": [], "is_locked": false},
//    "layer": {...}}                                               another level, as is any member

#pragma once

#include "parser/base/budget.h"
#include "parser/checkpoint.h"
#include "parser/format.h"
#include "parser/io/byte_source.h"

namespace ckptfs::tensordict {

// Whether a file ends as these do.
bool IsConsolidated(const Probe& probe);

// Reads such a file. Damage of a tensor or a collection in it costs that one. Throws Error.
Checkpoint ReadConsolidated(const ByteSourcePtr& file, Budget& budget);

}  // namespace ckptfs::tensordict
