// The mount point of a checkpoint for which the user names none.

#pragma once

#include <string>

namespace ckptfs {

// Returns the last name in `source`, a path or a URI, without what formats and compressors append
// to names, and without the number of a part of a gguf: "model" for
// "/data/model.safetensors.index.json" and "/data/model-00001-of-00003.gguf". URIs of files and of
// web servers are percent-decoded. Throws Error(EINVAL) if no name is left.
std::string DefaultMountpoint(const std::string& source);

}  // namespace ckptfs
