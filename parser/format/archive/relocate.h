// From a file in an archive to the archive.

#pragma once

#include <string_view>

#include "parser/checkpoint.h"
#include "parser/format/archive/record.h"

namespace ckptfs {

// Changes what `group` tells of where its bytes are. It was read from `source`, which is the file
// `record` of an archive as a source of its own; now that counts from the beginning of the archive.
// `path` is what the archive calls the file.
void Relocate(Group& group, const ByteSourcePtr& source, const Record& record,
              std::string_view path);

}  // namespace ckptfs
