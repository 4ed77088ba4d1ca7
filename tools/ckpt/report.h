// ckpt report: a checkpoint as one HTML page.

#pragma once

#include <optional>

#include "tools/ckpt/model.h"
#include "tools/ckpt/output_file.h"

namespace ckptfs::ckpt {

// Writes the page to `out`, or to standard output. With `has_values` reads the tensors, for their
// figures and histograms. Returns the exit status: 5 if a tensor cannot be read, which the page shows,
// else 0. Throws Error.
int Report(const Model& model, bool has_values, std::optional<OutputFile> out, Existing existing);

}  // namespace ckptfs::ckpt
