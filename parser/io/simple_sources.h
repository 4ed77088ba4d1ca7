// Byte sources that need no cache: of memory, zeros, unavailable bytes, and a part of another
// source.

#pragma once

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/io/byte_source.h"

namespace ckptfs {

class MemorySource : public ByteSource {
 public:
  explicit MemorySource(std::string bytes) : bytes_(std::move(bytes)) {}

  std::string name() const override { return "memory"; }
  uint64_t size() const override { return bytes_.size(); }
  bool is_immediate() const override { return true; }
  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    assert(offset <= size() && buffer.size() <= size() - offset);
    std::ranges::copy(std::as_bytes(std::span(bytes_)).subspan(offset, buffer.size()),
                      buffer.begin());
  }

 private:
  const std::string bytes_;
};

// Zeros, for tensors with a shape but no data.
class Zeros final : public ByteSource {
 public:
  explicit Zeros(uint64_t size) : size_(size) {}

  std::string name() const override { return "zeros"; }
  uint64_t size() const override { return size_; }
  bool is_hole() const override { return true; }
  bool is_immediate() const override { return true; }

  void ReadAt([[maybe_unused]] uint64_t offset, std::span<std::byte> buffer) const override {
    assert(offset <= size() && buffer.size() <= size() - offset);
    std::ranges::fill(buffer, std::byte{});
  }

 private:
  const uint64_t size_;
};

// A corrupt or missing part of a checkpoint: each read throws the given Error, so that the rest can
// be used.
class BrokenSource final : public ByteSource {
 public:
  BrokenSource(std::string name, uint64_t size, Error error)
      : name_(std::move(name)), size_(size), error_(std::move(error)) {}  // NOLINT: reads throw it.

  std::string name() const override { return name_; }
  uint64_t size() const override { return size_; }
  bool is_immediate() const override { return true; }
  void ReadAt(uint64_t /*offset*/, std::span<std::byte> /*buffer*/) const override {
    throw Error(error_);
  }

 private:
  const std::string name_;
  const uint64_t size_;
  const Error error_;
};

// A part of a source, with its own offsets.
class Slice final : public ForwardingSource {
 public:
  explicit Slice(const Extent& extent)
      : ForwardingSource(extent.source), offset_(extent.offset), size_(extent.length) {}

  uint64_t size() const override { return size_; }
  bool is_immediate() const override { return source().is_immediate(); }
  void AdviseFile(ByteRange range) const override {
    source().AdviseFile({.offset = offset_ + range.offset, .length = range.length});
  }
  void Prefetch(std::span<const ByteRange> ranges) const override {
    std::vector<ByteRange> moved(ranges.begin(), ranges.end());
    for (ByteRange& range : moved) range.offset += offset_;
    source().Prefetch(moved);
  }

  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    assert(offset <= size() && buffer.size() <= size() - offset);
    source().ReadAt(offset_ + offset, buffer);
  }

  bool TryReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    assert(offset <= size() && buffer.size() <= size() - offset);
    return source().TryReadAt(offset_ + offset, buffer);
  }

  void ReadPiecesAt(uint64_t offset, uint64_t stride, size_t length,
                    std::span<std::byte> buffer) const override {
    source().ReadPiecesAt(offset_ + offset, stride, length, buffer);
  }

 private:
  const uint64_t offset_;
  const uint64_t size_;
};

}  // namespace ckptfs
