// The JSON of a header.

#pragma once

#include <cstdint>

#include "parser/base/budget.h"
#include "parser/format/safetensors/header.h"
#include "parser/io/byte_source.h"

namespace ckptfs::safetensors {

// Reads the JSON that the `length` bytes of `file` from `offset` are into the entries and the
// metadata of `header`. Their types and their counts are right then, their numbers unchecked. What
// is kept is charged to `budget`. Throws Error.
void ReadEntries(const ByteSource& file, uint64_t offset, uint64_t length, Budget& budget,
                 Header& header);

}  // namespace ckptfs::safetensors
