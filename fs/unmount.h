// ckptfs -u.

#pragma once

#include <string>

namespace ckptfs {

// Unmounts the checkpoint that is mounted on `path`, as root or with fusermount3. Throws Error that
// names it, if no checkpoint is mounted there or if the mount is in use.
void Unmount(const std::string& path);

}  // namespace ckptfs
