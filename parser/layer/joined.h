// Extents of sources, one after another.

#pragma once

#include <string>
#include <vector>

#include "parser/io/byte_source.h"

namespace ckptfs {

// Returns the bytes of `parts` as one source, which `name` names in messages. Reads throw what the
// part throws; the other parts remain readable.
ByteSourcePtr MakeJoined(std::string name, std::vector<Extent> parts);

}  // namespace ckptfs
