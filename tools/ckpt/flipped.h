// Tensors whose axes are turned round.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "parser/io/byte_source.h"

namespace ckptfs::ckpt {

struct FlippedAxis {
  uint64_t size = 0;
  bool is_flipped = false;
};

// Returns the tensor whose elements, of `item_size` bytes and in C order, are the `data`, with the
// flipped axes in reverse order. At least one axis is flipped, and none is empty.
ByteSourcePtr MakeFlipped(Extent data, std::vector<FlippedAxis> axes, size_t item_size);

}  // namespace ckptfs::ckpt
