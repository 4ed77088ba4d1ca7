// The block types of ggml, which gguf files store: some numbers of few bits each with common
// scales.

#pragma once

#include <cstddef>
#include <string_view>

namespace ckptfs::ckpt {

struct BlockType {
  std::string_view name;  // "Q4_K".
  size_t bytes = 0;       // Of a block.
  size_t elements = 0;    // Of a block; at most kMaxBlockElements.

  // Writes the elements of `count` blocks, which are little-endian. All bytes are valid.
  void (*decode)(const std::byte* blocks, size_t count, float* elements) = nullptr;
};

constexpr size_t kMaxBlockElements = 256;

// Returns the type with that name; null if it is unknown: IQ1, IQ2 and IQ3, whose codes are indexes
// of large tables, and those that files do not contain, such as Q8_K.
const BlockType* BlockTypeNamed(std::string_view name);

// Pairs of float4_e2m1fn: the element in the lower bits is the first.
extern const BlockType kFloat4Pairs;

}  // namespace ckptfs::ckpt
