// The mount point of a checkpoint for which the user names none.

#pragma once

#include <string>

namespace ckptfs {

// Returns the last name in `source`, a path or a URI, without what formats and compressors append
// to names: "model" for "/data/model.safetensors.index.json". Throws Error(EINVAL) if none is left.
std::string DefaultMountpoint(const std::string& source);

}  // namespace ckptfs
