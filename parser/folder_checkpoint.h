// Finds the checkpoints in a folder: which of its files belong together, and which are the same
// model again.

#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parser/checkpoint.h"
#include "parser/format.h"
#include "parser/io/folder.h"
#include "parser/read_options.h"

namespace ckptfs {

// A checkpoint in a folder: several files with an index, or one file.
struct FolderCheckpoint {
  const FolderFormat* format = nullptr;  // Null: one file.
  std::string name;                      // Of the index, or of the file.
  std::vector<std::string> twins;  // Files with the same model in other formats or precisions.
};

// Returns the checkpoints that the files of `folder` make up, in the order of their names, but at
// most `most`: more are not searched. One with an index hides all others. `files` is the listing of
// the folder. Reads heads and tails of files. Throws Error: EACCES if the only candidates may not
// be read, and transient errors.
std::vector<FolderCheckpoint> FindCheckpoints(const Folder& folder,
                                              std::span<const std::string> files, size_t most);

// Returns whether `name` is that of one of several files: "model-00002-of-00003.safetensors", or
// "__0_0.distcp".
bool IsOneOfSeveral(std::string_view name);

// Returns whether `name` is that of a file of a distributed checkpoint. Without its metadata, its
// items cannot be separated: it looks like an archive with the last one.
bool IsOfDistributed(std::string_view name);

// Whether the files of `folder` are one checkpoint, and its subfolders contain no others. Throws as
// FindCheckpoints does.
bool IsOneCheckpoint(const Folder& folder);

// Reads the checkpoint that `folder` is. Files without a tensor do not count if others have some.
// Throws Error: ENOTUNIQ if there are several checkpoints in the folder, or in its subfolders;
// ENOTSUP if no checkpoint is found.
Checkpoint ReadFolder(const FolderPtr& folder, const ReadOptions& options);

// Whether the config.json of `folder` is that of a component of diffusers: it names a class. False
// if it is missing, too large or no JSON. Throws transient errors.
bool IsDiffusersComponent(const Folder& folder);

}  // namespace ckptfs
