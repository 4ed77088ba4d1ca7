// ckpt stat: figures of all tensors.

#pragma once

#include <string>

#include "tools/ckpt/model.h"
#include "tools/ckpt/output.h"

namespace ckptfs::ckpt {

struct StatOptions {
  std::string pattern;    // See Matches.
  bool is_check = false;  // NaN and infinities are a failure.
  OutputFormat format = OutputFormat::kText;
};

// Reads the tensors in several threads, and prints their figures. Returns the exit status: 1 if
// `is_check` finds something, 5 if a tensor cannot be read, else 0. Throws Error.
int Measure(const Model& model, const StatOptions& options);

}  // namespace ckptfs::ckpt
