// A TensorDict saved by memmap or save, in a directory or in an archive:
//
//   meta.json        the class of the collection and its members
//   <key>.memmap     a tensor: see leaf.h
//   <key>/           a collection or a value, with the same layout
//
//   {"weight": {"device": "cpu", "shape": [4, 3], "dtype": "torch.float32", "is_nested": false},
//    "layer": {"type": "TensorDict"}, "step": {"type": "NonTensorData"},
//    "shape": [], "device": "cpu", "_type": "<class 'tensordict._td.TensorDict'>"}
//
// The class determines the meaning of the rest: see CollectionKind. The JSON is in Python's
// dialect. Version 0.3 does not list collections in meta.json: every directory is one.

#pragma once

#include "parser/base/budget.h"
#include "parser/checkpoint.h"
#include "parser/format/archive/members.h"
#include "parser/format/tensordict/directory.h"
#include "parser/io/folder.h"
#include "parser/read_options.h"

namespace ckptfs::tensordict {

// Reads the TensorDict in `root`. A corrupt tensor or collection does not affect the others. Throws
// Error; the message need not name the meta.json of `root`.
Checkpoint ReadTree(const Directory& root, Budget& budget);

// Returns whether the archive is a .tdz file, which tensordict writes since 0.14: a zip archive of
// the directory.
bool IsZip(const Members& members);

// Reads the archive `source`, which has these members. Throws Error.
Checkpoint ReadZip(const Source& source, Members members, const ReadOptions& options);

}  // namespace ckptfs::tensordict
