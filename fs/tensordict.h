// The directory layout that tensordict.TensorDict.load_memmap reads.
//
//   meta.json            lists the members, in the order of the checkpoint: see tensordict_meta.h
//   <key>.memmap         the bytes of a tensor; empty for a tensor without elements
//   <key>.shape.memmap   of a nested tensor: the shapes of the tensors in it
//   <key>/               a dict, a list or an object with tensors in it: the same layout again
//   <key>/               a value that is not a tensor: a meta.json with its JSON, and nothing else
//   <key>.jsonl          the rows of a table, which tensordict ignores
//
// Keys are split at dots into directories and encoded as file names (tensordict_names.h). From 0.13
// on, tensordict looks up a tensor by its percent-encoded key, before that by the raw key: a file
// has both names if they differ. tensordict ignores names that are not members of meta.json.
//
// Collections that tensordict saved keep their classes and batch sizes: see Collection.

#pragma once

#include <string>
#include <vector>

#include "fs/tree.h"
#include "parser/checkpoint.h"

namespace ckptfs {

// A file or a directory in the root beside the contents of the checkpoint.
struct BesideEntry {
  std::string name;
  ByteSourcePtr file;                // Null: a directory ...
  std::vector<BesideEntry> entries;  // ... with these entries.
};

struct LayoutOptions {
  bool is_flat = false;         // Do not split keys at dots.
  bool has_attributes = false;  // Give each tensor file extended attributes.
  std::string source;           // For the root's meta.json: what was mounted, without secrets.
  std::string version;          // For the root's meta.json: of this program.
  bool has_npy = false;         // Put the .npy view of each tensor beside it.

  // The checkpoint takes precedence: a name that is in use gets a '~', and is listed in the root's
  // meta.json.
  std::vector<BesideEntry> beside;
};

// Lays out a valid checkpoint, which is consumed. Tensors with elements that are the same view of
// the same bytes are one file with several names. Throws Error(EFBIG) if there are more than 2^31
// files.
Tree LayOut(Checkpoint checkpoint, const LayoutOptions& options);

}  // namespace ckptfs
