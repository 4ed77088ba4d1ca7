// Sources for tests.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "parser/io/byte_source.h"

namespace ckptfs {

// Returns `length` bytes of `source`, from `offset`.
inline std::string ReadString(const ByteSource& source, uint64_t offset, size_t length) {
  std::string text(length, '\0');
  source.ReadAt(offset, std::as_writable_bytes(std::span(text)));
  return text;
}

// Returns the bytes of `extent`.
inline std::string ReadString(const Extent& extent) {
  return ReadString(*extent.source, extent.offset, extent.length);
}

}  // namespace ckptfs
