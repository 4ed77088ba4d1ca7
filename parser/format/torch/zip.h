// The zip archives of torch.save, TorchScript, torch.package and torch.export.

#pragma once

#include "parser/checkpoint.h"
#include "parser/format/archive/members.h"
#include "parser/io/folder.h"
#include "parser/read_options.h"

namespace ckptfs::torch {

// Whether they look like those of such an archive, whole or not.
bool IsZip(const Members& members);

// Reads the archive that `source` is, whose members these are. Throws Error.
Checkpoint ReadZip(const Source& source, Members members, const ReadOptions& options);

}  // namespace ckptfs::torch
