// The types of tensors in ggml.
//
// Beside the plain ones there are some thirty that store a row in blocks: 32 to 256 numbers of a
// few bits each, with the scales that they have in common. A block is never split between rows.

#pragma once

#include <cstdint>
#include <string_view>

#include "parser/base/dtype.h"

namespace ckptfs::gguf {

struct StoredType {
  std::string_view name;  // "Q4_K".
  uint32_t number;        // In the file.
  unsigned elements;      // Of a block; 1 of plain types.
  unsigned bytes;         // Of a block.
  Dtype dtype;            // kOpaque: of blocks.
};

// Returns null for numbers that ggml has given up (4, 5, 31 to 33, 36 to 38), that it gave after
// August 2026, or that its forks use.
const StoredType* StoredTypeOf(uint32_t number);

}  // namespace ckptfs::gguf
