// Bytes that are all zero and lie nowhere.

#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "parser/io/byte_source.h"
#include "parser/io/immediate.h"

namespace ckptfs {

// For tensors of which a checkpoint has a shape, but no data.
class Zeros final : public ByteSource, public Immediate {
 public:
  explicit Zeros(uint64_t size) : size_(size) {}

  std::string name() const override { return "zeros"; }
  uint64_t size() const override { return size_; }
  bool is_hole() const override { return true; }

  void ReadAt([[maybe_unused]] uint64_t offset, std::span<std::byte> buffer) const override {
    assert(offset <= size() && buffer.size() <= size() - offset);
    std::ranges::fill(buffer, std::byte{});
  }

 private:
  const uint64_t size_;
};

}  // namespace ckptfs
