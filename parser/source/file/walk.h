// Finds files below a directory without being led astray by its symbolic links.
//
// Whoever can write to the directory of a checkpoint can put links there, and whoever mounts it can
// often read more than that: root can read /etc/shadow, and with -o allow_other everybody would
// then read it as a tensor. The rule for links is that of the kernel's fs.protected_symlinks, and
// stricter with allow_other: see LinkPolicy.

#pragma once

#include <string>

#include "parser/base/fd.h"
#include "parser/io/source_options.h"

namespace ckptfs::file {

// Opens what `path` names, relative to the directory `root`, with O_PATH: nothing happens to a
// device or a pipe, and the descriptor is never that of a link. Each link on the way is read and
// followed one component at a time, with its directory held open, so a link that is swapped
// meanwhile is checked like the first one. Throws Error: EACCES if `policy` refuses a link.
Fd OpenPath(const Fd& root, const std::string& path, LinkPolicy policy);

// Opens for reading what `path`, an O_PATH descriptor, refers to. Throws Error: EISDIR or EINVAL,
// without opening it, if that is not a regular file.
Fd OpenForReading(const Fd& path);

}  // namespace ckptfs::file
