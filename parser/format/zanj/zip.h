// The archives of ZANJ (https://github.com/mivanit/ZANJ) and, before, of muutils.zanj.

#pragma once

#include "parser/checkpoint.h"
#include "parser/format/archive/members.h"
#include "parser/io/folder.h"
#include "parser/read_options.h"

namespace ckptfs::zanj {

// Whether there is the JSON that all else hangs from.
bool IsZip(const Members& members);

// Reads the archive that `source` is, whose members these are. Throws Error.
Checkpoint ReadZip(const Source& source, Members members, const ReadOptions& options);

}  // namespace ckptfs::zanj
