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

// The elements in `box`. Precondition: they can be counted.
uint64_t ElementsOf(const Region& box);

// How boxes fill a tensor.
struct Tiling {
  // Indexes of the boxes that have elements. Identical ones follow one another, in the order in
  // which they were given.
  std::vector<size_t> order;

  bool is_complete = false;  // No element is without a box.
};

// Finds out how `boxes` fill a tensor of `shape`, whose bytes can be counted. No two of them
// overlap, but for those that are identical; boxes without elements may be anywhere.
//
// Throws Error: EBADMSG if boxes overlap, have not as many dimensions as the tensor or reach beyond
// it, EFBIG if to compare them is more work than `budget` has left.
Tiling TilingOf(const std::vector<uint64_t>& shape, std::span<const Region> boxes, Budget& budget);

}  // namespace ckptfs
