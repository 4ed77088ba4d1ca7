// ckpt convert: writes a checkpoint in another format.

#pragma once

#include <cstdint>
#include <string>

#include "tools/ckpt/model.h"
#include "tools/ckpt/output_file.h"

namespace ckptfs::ckpt {

struct ConvertOptions {
  std::string output;
  std::string target;   // Its name (target.h); empty: that of the suffix of `output`.
  std::string pattern;  // Only keys that match; empty: all.
  std::string map;      // See KeyMap.
  std::string dtype;    // Of floating-point tensors, see CastTypeNamed; empty: as they are.
  std::string shard;    // "5GB": the most bytes of a file; empty: one file.
  Existing existing = Existing::kKeep;
  bool is_verified = false;  // Compare what is on the disk with the source.
};

// Writes all files, or none. Keeps a few chunks in memory. Throws Error.
void Convert(const Model& model, const ConvertOptions& options);

}  // namespace ckptfs::ckpt
