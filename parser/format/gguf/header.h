// The header of a file: all but the bytes of the tensors.
//
//   "GGUF"        the magic, whatever the byte order
//   version       u32: 1 to 3
//   tensors       count
//   pairs         count
//   pairs      x  key: text, type: u32, value; see metadata.h
//   tensors    x  name: text, dimensions: u32, sizes: counts, type: u32, offset: u64
//
// A text is its length, which is a count, and its bytes. A count has 64 bits, but 32 in version 1.
// Version 3 is as version 2, and there came files whose numbers are big-endian, data included; what
// tells them is that the version makes no sense the other way round. Sizes come in the order of
// ggml, the one whose elements lie side by side first; we turn them round.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/budget.h"
#include "parser/format/gguf/metadata.h"
#include "parser/io/byte_source.h"

namespace ckptfs::gguf {

constexpr std::string_view kMagic = "GGUF";

// A tensor as the header has it.
struct Entry {
  std::string name;             // Any bytes at all.
  std::vector<uint64_t> shape;  // In C order; its product is less than 2^63.
  uint32_t type = 0;            // See types.h; perhaps one that we do not know.
  uint64_t offset = 0;          // In the data, in bytes.
};

struct Header {
  uint32_t version = 0;
  bool is_big_endian = false;
  Metadata metadata;
  std::vector<Entry> entries;  // In the order of the file; names are unique.
  uint64_t end = 0;            // The first byte behind the header.
};

// Reads the header of `file`, which begins with the magic. What the result keeps is charged to
// `budget`. Throws Error.
Header ReadHeader(const ByteSource& file, Budget& budget);

}  // namespace ckptfs::gguf
