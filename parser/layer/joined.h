// Concatenated extents of sources.

#pragma once

#include <string>
#include <vector>

#include "parser/io/byte_source.h"

namespace ckptfs {

// Returns the bytes of `parts` as one source with this `name` for messages. Reads throw as those of
// the parts; a part that fails does not affect the others.
ByteSourcePtr MakeJoined(std::string name, std::vector<Extent> parts);

}  // namespace ckptfs
