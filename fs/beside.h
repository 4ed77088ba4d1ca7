// The files that a mount shows beside the tensors: views of the checkpoint in other formats, under
// the names that programs look for, and companions, which are the other files in its folder:
// config.json, tokenizer.json, README.md.

#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fs/options.h"
#include "fs/tensordict.h"
#include "parser/base/budget.h"
#include "parser/checkpoint.h"
#include "parser/io/folder.h"

namespace ckptfs {

// Returns the path in a store of the view `name` of `folder`, which has no file of that name:
// "pytorch_model.bin.d/model.safetensors". Empty if no such view exists. Throws Error.
std::string FindViewInStore(const Folder& folder, const std::string& name);

// The names for which FindViewInStore finds something.
std::vector<std::string> ViewNames();

// Adds the safetensors view of `checkpoint`, which is read from `source`, to `beside` if `options`
// ask for it, or if nothing is asked for and `source` is a model repository; `is_in_store`: or is
// in one. Adds to the warnings and annotations of the checkpoint what the view lacks. Throws Error.
void AddSafetensorsView(Checkpoint& checkpoint, const Source& source, const Options& options,
                        bool is_in_store, Budget& budget, std::vector<BesideEntry>& beside);

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
