// The archives that tensordict saves since 0.14 (.tdz): a TensorDict as it would lie on a disk, in
// a zip archive.

#pragma once

#include "parser/checkpoint.h"
#include "parser/format/archive/members.h"
#include "parser/io/folder.h"
#include "parser/read_options.h"

namespace ckptfs::tensordict {

// Whether they look like those of such an archive.
bool IsZip(const Members& members);

// Reads the archive that `source` is, whose members these are. Throws Error.
Checkpoint ReadZip(const Source& source, Members members, const ReadOptions& options);

}  // namespace ckptfs::tensordict
