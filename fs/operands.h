// The operands of the command line.

#pragma once

#include <string>

namespace ckptfs {

// Throws Error(EINVAL) if `source` must be the mount point and `mountpoint` the checkpoint, because
// they make no sense otherwise.
void CheckOrder(const std::string& source, const std::string& mountpoint);

}  // namespace ckptfs
