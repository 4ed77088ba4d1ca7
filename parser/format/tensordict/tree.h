// What memmap and save of tensordict write, on a disk or in an archive:
//
//   meta.json        the class of the collection, and what is in it
//   <key>.memmap     a tensor: see leaf.h
//   <key>/           a collection or a value: the same again
//
//   {"weight": {"device": "cpu", "shape": [4, 3], "dtype": "torch.float32", "is_nested": false},
//    "layer": {"type": "TensorDict"}, "step": {"type": "NonTensorData"},
//    "shape": [], "device": "cpu", "_type": "<class 'tensordict._td.TensorDict'>"}
//
// The class says how the rest is to be understood: see CollectionKind. The JSON is what
// Python calls JSON. Version 0.3 does not list collections: all directories are some.

#pragma once

#include "parser/base/budget.h"
#include "parser/checkpoint.h"
#include "parser/format/tensordict/directory.h"

namespace ckptfs::tensordict {

// Reads what was saved in `root`. Damage of a tensor or a collection in it costs that one. Messages
// need not name the meta.json of `root`. Throws Error.
Checkpoint ReadTree(const Directory& root, Budget& budget);

}  // namespace ckptfs::tensordict
