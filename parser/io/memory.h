// Bytes that we already have.

#pragma once

#include <algorithm>
#include <cassert>
#include <span>
#include <string>
#include <utility>

#include "parser/io/byte_source.h"
#include "parser/io/immediate.h"

namespace ckptfs {

class MemorySource : public ByteSource, public Immediate {
 public:
  explicit MemorySource(std::string bytes) : bytes_(std::move(bytes)) {}

  std::string name() const override { return "memory"; }
  uint64_t size() const override { return bytes_.size(); }
  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    assert(offset <= size() && buffer.size() <= size() - offset);
    std::ranges::copy(std::as_bytes(std::span(bytes_)).subspan(offset, buffer.size()),
                      buffer.begin());
  }

 private:
  const std::string bytes_;
};

}  // namespace ckptfs
