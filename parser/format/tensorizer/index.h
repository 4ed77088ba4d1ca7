// The index of a file: what tensors there are, and where.
//
// The entries lie behind one another; the rest of the region, whose size was chosen before it was
// known how many there would be, is zeros. One entry is
//
//   tag                  u32, only in files with tags: 1, or 5 if sizes have 64 bits
//   name                 u16 length, bytes: see name.h
//   kind                 u8
//   dtype                u8 length, bytes: see dtypes.h
//   shape                u8 number of dimensions; u32 each, or u64 if the tag is 5
//   offset of header     u64, in the file
//   offset of data       u64, in the file
//   bytes of data        u64
//
// The header of the tensor says most of this again.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/byte_reader.h"
#include "parser/format/tensorizer/file_header.h"
#include "parser/io/byte_source.h"

namespace ckptfs::tensorizer {

enum class Kind : uint8_t { kParameter, kBuffer, kStateDict };

struct Entry {
  std::string_view name;   // As the file has it, ...
  std::string_view dtype;  // ... as is this.
  Kind kind = Kind::kParameter;
  bool is_long = false;  // Sizes have 64 bits, here and in the header of the tensor.
  std::vector<uint64_t> shape;
  uint64_t header_offset = 0;
  uint64_t data_offset = 0;
  uint64_t data_size = 0;  // Bytes.
};

struct Index {
  std::vector<std::byte> bytes;  // What the names and types of the entries point into.
  std::vector<Entry> entries;    // In the order of the file.
};

// Reads all entries. Their kinds and numbers of dimensions are checked; all else in them is as the
// file has it. What the result keeps is charged to `budget`. Throws Error.
Index ReadIndex(const ByteSource& file, const FileHeader& header, Budget& budget);

// Reads a shape of `count` sizes.
std::vector<uint64_t> ReadShape(ByteReader& reader, size_t count, bool is_long);

}  // namespace ckptfs::tensorizer
