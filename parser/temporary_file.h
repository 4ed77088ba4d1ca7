// Files that nobody else sees, and that go away with the last descriptor.

#pragma once

#include "parser/fd.h"

namespace ckptfs {

// Makes a file without a name in $TMPDIR, or else in /var/tmp, for reading and writing. Returns no
// descriptor if there can be none; errno says why.
Fd MakeTemporaryFile();

}  // namespace ckptfs
