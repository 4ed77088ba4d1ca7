// Companions: the other files in the folder of a checkpoint: config.json, tokenizer.json,
// README.md.

#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "fs/tensordict.h"
#include "parser/io/folder.h"

namespace ckptfs {

struct Companions {
  std::vector<BesideEntry> entries;
  bool are_all = true;  // False: there are too many.
};

// Returns the files of `folder` that are not among `parts` and for which `is_shown` holds, and
// those of its subfolders, unless access to a subfolder is denied. Files are opened when they are
// read. Throws Error.
Companions FindCompanions(const FolderPtr& folder, std::span<const std::string> parts,
                          const std::function<bool(const EntryInfo& info)>& is_shown);

}  // namespace ckptfs
