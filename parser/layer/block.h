// The unit in which bytes of remote objects are kept.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace ckptfs {

// In bytes. A read of 4 KiB costs one block, two if it lies across their border.
constexpr size_t kBlockSize = size_t{32} << 10;

// How many blocks an object of `size` bytes has; the last one may be shorter than the others.
constexpr uint64_t BlockCount(uint64_t size) {
  return size / kBlockSize + (size % kBlockSize != 0 ? 1 : 0);
}

// The length in bytes of block `block` of an object of `size` bytes.
constexpr size_t BlockLength(uint64_t size, uint64_t block) {
  return static_cast<size_t>(std::min<uint64_t>(kBlockSize, size - block * kBlockSize));
}

}  // namespace ckptfs
