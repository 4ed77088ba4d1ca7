// Reads little-endian fields from untrusted bytes.

#pragma once

#include <bit>
#include <cerrno>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "parser/base/error.h"

namespace ckptfs {

static_assert(std::endian::native == std::endian::little, "port ByteReader::Read");

// A position in a buffer. Every read is bounds-checked and throws Error(EBADMSG) with the
// structure, the field and the position, so callers never check a length themselves.
class ByteReader {
 public:
  // `what` names the structure in messages and must outlive the reader, as must `bytes`. `base` is
  // the position of `bytes` in the structure, for messages.
  ByteReader(std::string_view what, std::span<const std::byte> bytes, uint64_t base = 0)
      : what_(what), bytes_(bytes), base_(base) {}

  size_t offset() const { return offset_; }
  size_t remaining() const { return bytes_.size() - offset_; }

  // The position in the structure.
  uint64_t position() const { return base_ + offset_; }

  // Reads an integer, least significant byte first.
  template <std::integral T>
  T Read(std::string_view field) {
    T value;
    std::memcpy(&value, Take(sizeof(T), field).data(), sizeof(T));
    return value;
  }

  // Reads `length` bytes. The view points into the buffer.
  std::span<const std::byte> Take(uint64_t length, std::string_view field) {
    if (length > remaining()) {
      Fail(EBADMSG, "{} at byte {}: {} needs {} bytes, but only {} are left", what_, position(),
           field, length, remaining());
    }
    const auto taken = bytes_.subspan(offset_, length);
    offset_ += length;
    return taken;
  }

  // Reads `length` bytes as text.
  std::string_view TakeText(uint64_t length, std::string_view field) {
    const auto taken = Take(length, field);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }

 private:
  std::string_view what_;
  std::span<const std::byte> bytes_;
  uint64_t base_;
  size_t offset_ = 0;
};

}  // namespace ckptfs
