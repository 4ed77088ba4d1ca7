// ckpt diff: what differs between two checkpoints.

#pragma once

#include <string>

#include "tools/ckpt/model.h"
#include "tools/ckpt/output.h"

namespace ckptfs::ckpt {

struct DiffOptions {
  std::string pattern;   // Of keys of either, after they are renamed. See Matches.
  std::string map;       // See KeyMap.
  double tolerance = 0;  // Absolute differences of elements that are no differences.
  OutputFormat format = OutputFormat::kText;
};

// Prints the tensors that differ. Returns the exit status, as diff(1): 0 if there are none, 1 if there
// are some. Throws Error.
int Diff(const Model& a, const Model& b, const DiffOptions& options);

}  // namespace ckptfs::ckpt
