// The directory layout that tensordict.TensorDict.load_memmap reads.

#pragma once

#include <string>
#include <string_view>

#include "fs/tree.h"
#include "parser/checkpoint.h"

namespace ckptfs {

struct LayoutOptions {
  bool is_flat = false;           // Do not split keys at dots.
  bool has_attributes = false;    // Give each tensor file extended attributes.
  std::string source;             // For the root's meta.json: what was mounted, without secrets.
};

// Lays out a valid checkpoint, which is used up. Throws Error(EFBIG) if there are more than 2^31
// files.
Tree LayOut(Checkpoint checkpoint, const LayoutOptions& options);

// Returns the file name that tensordict >= 0.13 gives to a key, without the ".memmap".
std::string EncodeKey(std::string_view key);

// The inverse of EncodeKey for every text that it returns.
std::string DecodeKey(std::string_view name);

}  // namespace ckptfs
