// A file that is opened when it is first read.

#pragma once

#include <string>

#include "parser/io/byte_source.h"
#include "parser/io/folder.h"

namespace ckptfs {

// Returns the file `name` of `folder`, which `info` describes. It is opened when it is first read;
// reads throw Error(ESTALE) if it has changed by then.
ByteSourcePtr MakeListedFile(FolderPtr folder, std::string name, const EntryInfo& info);

}  // namespace ckptfs
