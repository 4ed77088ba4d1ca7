// A tensor assembled from pieces, as a program on many machines writes it: each machine saves the
// part that it has.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "parser/io/byte_source.h"
#include "parser/layer/tiling.h"

namespace ckptfs {

// A box and the location of its elements: densely packed, in C order.
struct Piece {
  Region box;
  Extent data;
};

// Returns the tensor of `shape` with elements of `item_size` bytes as a dense one in C order. The
// pieces, at least one, are boxes that TilingOf accepts and that are not empty or identical.
// Reading an element outside all pieces throws Error(EIO).
//
// Throws Error(EBADMSG) if a piece has not as many bytes as its box.
ByteSourcePtr MakeAssembled(const std::vector<uint64_t>& shape, size_t item_size,
                            std::vector<Piece> pieces);

}  // namespace ckptfs
