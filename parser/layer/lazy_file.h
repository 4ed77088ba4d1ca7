// A file that is opened when it is first read.

#pragma once

#include <string>

#include "parser/io/byte_source.h"
#include "parser/io/folder.h"

namespace ckptfs {

// Returns the file `name` of `folder` as `info` describes it. It is opened when it is first read; reads
// throw Error(ESTALE) if it is another one by then.
ByteSourcePtr MakeListedFile(FolderPtr folder, std::string name, const EntryInfo& info);

}  // namespace ckptfs
