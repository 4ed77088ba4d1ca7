// ckpt scan: what loading checkpoints would execute.

#pragma once

#include <span>
#include <string>

#include "tools/ckpt/findings.h"
#include "tools/ckpt/model.h"

namespace ckptfs::ckpt {

// Prints the classes and functions that the pickles of `sources`, and of all files in those that are
// folders, import, unless torch.load(weights_only=True) allows them. Nothing is executed. Returns
// the exit status: 1 if there is any, or if a file cannot be read, because its pickle runs up to the
// corrupt byte; else 0. Throws Error.
int Scan(std::span<const std::string> sources, const Opener& opener, ScanFormat format);

}  // namespace ckptfs::ckpt
