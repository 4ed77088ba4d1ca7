// Files that nobody else sees, and that go away with the last descriptor.

#pragma once

#include <cstdint>

#include "parser/base/fd.h"

namespace ckptfs {

// Makes a file without a name in $TMPDIR, or else in /var/tmp, for reading and writing. Returns no
// descriptor if there can be none; errno says why.
Fd MakeTemporaryFile();

// Returns how many bytes are free where they are made; 0 if that is not known.
uint64_t FreeForTemporaryFiles();

}  // namespace ckptfs
