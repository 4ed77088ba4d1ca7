// Whether boxes fill a tensor, and whether they overlap.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "parser/base/budget.h"

namespace ckptfs {

// A part of a tensor: from `offsets` on, `sizes` elements along each dimension.
struct Region {
  std::vector<uint64_t> offsets;
  std::vector<uint64_t> sizes;
  bool operator==(const Region&) const = default;
};

// Returns the number of elements in `box`. Precondition: it does not overflow.
uint64_t ElementsOf(const Region& box);

// The result of TilingOf.
struct Tiling {
  // Indexes of the boxes with elements. Identical boxes are adjacent, in their original order.
  std::vector<size_t> order;

  bool is_complete = false;  // Every element is in a box.
};

// Checks how `boxes` fill a tensor of `shape`, whose size does not overflow. Boxes may be
// identical, but must not overlap otherwise; boxes without elements may be anywhere.
//
// Throws Error: EBADMSG if boxes overlap, differ from the tensor in the number of dimensions, or
// reach beyond it, EFBIG if comparing them exceeds `budget`.
Tiling TilingOf(const std::vector<uint64_t>& shape, std::span<const Region> boxes, Budget& budget);

}  // namespace ckptfs
