// Where to mount, and whether it can be done.

#pragma once

#include <string>

namespace ckptfs {

// Checks that `path` is a directory that can be mounted over: empty and not mounted over already,
// unless `may_cover`. Returns its absolute path without links, "." and "..". Throws Error whose
// message starts with the path.
std::string CheckedMountpoint(const std::string& path, bool may_cover);

// Checks that this process may hope to mount with FUSE. Throws Error.
void CheckFuse();

}  // namespace ckptfs
