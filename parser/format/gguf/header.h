// The header of a file: everything except the data of the tensors.
//
//   "GGUF"        the magic, whatever the byte order
//   version       u32: 1 to 3
//   tensors       count
//   pairs         count
//   pairs      x  key: text, type: u32, value; see metadata.h
//   tensors    x  name: text, dimensions: u32, sizes: counts, type: u32, offset: u64
//
// A text is its length, a count, followed by its bytes. A count has 64 bits, in version 1 it has
// 32. Version 3 equals version 2, and introduced files whose numbers, data included, are
// big-endian; they are recognized by their version, which is implausible in little-endian order.
// Sizes are in the order of ggml, innermost dimension first; ckptfs reverses them.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/format/gguf/metadata.h"
#include "parser/io/byte_source.h"

namespace ckptfs::gguf {

constexpr std::string_view kMagic = "GGUF";

// The header's entry of a tensor.
struct TensorInfo {
  std::string name;             // Any bytes.
  std::vector<uint64_t> shape;  // In C order; its product is less than 2^63.
  uint32_t type = 0;            // See StoredTypeOf; may be unknown.
  uint64_t offset = 0;          // In the data, in bytes.
};

struct GgufHeader {
  uint32_t version = 0;
  bool is_big_endian = false;
  Metadata metadata;
  std::vector<TensorInfo> entries;  // In the order of the file; names are unique.
  uint64_t end = 0;                 // The first byte after the header.
};

// Reads the header of `file`, which begins with the magic. Charges `budget` for the result. Throws
// Error.
GgufHeader ReadHeader(const ByteSource& file, Budget& budget);

// The header is padded to a multiple of the alignment; the data begins there, and offsets are
// relative to its begin. Each tensor begins at a multiple of the alignment, too. ggml requires the
// order of the header with only padding between tensors; other writers leave gaps or use another
// order.
constexpr uint32_t kUsualAlignment = 32;  // Unless the metadata specifies another one.

// The data of one tensor.
struct DataRange {
  uint64_t offset = 0;         // In the file, in bytes.
  uint64_t length = 0;         // In bytes.
  std::optional<Error> error;  // Set: the tensor is invalid.
};

// Locates the data of all tensors in a file of `file_size` bytes. A tensor of an unknown type
// extends to the next tensor or to the end of the file. Throws Error if data lie beyond the end of
// the file, are not aligned, or overlap.
std::vector<DataRange> LocateTensors(const GgufHeader& header, uint64_t alignment,
                                     uint64_t file_size, Budget& budget);

// Returns the size of a file, padding included, whose data has that alignment and ggml's layout.
// Returns nothing if a type is unknown.
std::optional<uint64_t> EndOf(const GgufHeader& header, uint64_t alignment);

}  // namespace ckptfs::gguf
