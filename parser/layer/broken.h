// Bytes that cannot be had.

#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "parser/base/error.h"
#include "parser/io/byte_source.h"
#include "parser/io/immediate.h"

namespace ckptfs {

// Stands for a damaged part of a checkpoint, so that the rest can be used: it has a length, but to
// read any of it throws Error with a given code and message.
class BrokenSource final : public ByteSource, public Immediate {
 public:
  BrokenSource(std::string name, uint64_t size, std::string error, int code = EIO)
      : name_(std::move(name)), size_(size), error_(std::move(error)), code_(code) {}

  std::string name() const override { return name_; }
  uint64_t size() const override { return size_; }
  void ReadAt(uint64_t /*offset*/, std::span<std::byte> /*buffer*/) const override {
    throw Error(code_, error_);
  }

 private:
  const std::string name_;
  const uint64_t size_;
  const std::string error_;
  const int code_;
};

}  // namespace ckptfs
