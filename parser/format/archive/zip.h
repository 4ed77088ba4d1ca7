// Zip archives, whatever kind of checkpoint they are.

#pragma once

#include "parser/checkpoint.h"
#include "parser/io/folder.h"
#include "parser/read_options.h"

namespace ckptfs {

// Reads the zip archive that `source` is, or ends with. As Format::parse.
Checkpoint ReadZipArchive(const Source& source, const ReadOptions& options);

}  // namespace ckptfs
