// ckpt ls: the tensors of a checkpoint.

#pragma once

#include <cstdint>
#include <string>

#include "tools/ckpt/model.h"
#include "tools/ckpt/output.h"

namespace ckptfs::ckpt {

struct LsOptions {
  std::string pattern;  // See TensorsOf.
  bool is_long = false;
  bool is_tree = false;  // By module instead of by tensor.
  bool by_size = false;  // The largest first.
  OutputFormat format = OutputFormat::kText;
};

// Prints them. Throws Error.
void List(const Model& model, const LsOptions& options);

}  // namespace ckptfs::ckpt
