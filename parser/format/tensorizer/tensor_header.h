// The header of a tensor, which lies before its data.
//
//   bytes of all of it   u64      these included
//   module               u16      number of the module that has it, in the order of traversal
//   kind, name, dtype, shape      as in the index, but without a tag
//   hashes               u16 length; u8 count; of each: u8 type, u8 length, value
//   encryption           u64 length; see encryption_section.h. Only in encrypted files
//   bytes of data        i64      the last 8 bytes
//
// The hashes are of the header, with zeros in their own place and without the section on
// encryption, and of the plain data behind it.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "parser/base/budget.h"
#include "parser/format/tensorizer/file_header.h"
#include "parser/format/tensorizer/index.h"
#include "parser/io/byte_source.h"
#include "parser/layer/verified.h"

namespace ckptfs::tensorizer {

struct TensorHeader {
  uint16_t module = 0;
  Hashes hashes;
  std::optional<Extent> encryption;  // The section, without its length.
  std::vector<std::byte> hashed;     // What was hashed before the data.
};

// Whether the header of the tensor that `entry` tells about, in a file that is not encrypted, need
// not be read before the data. Checks what ReadTensorHeader does of their places. Throws Error.
bool CanWait(const ByteSource& file, const FileHeader& header, const Entry& entry);

// Checks a header that could wait, of which `bytes` is all. Throws Error as ReadTensorHeader does.
void CheckTensorHeader(std::span<const std::byte> bytes, const Entry& entry);

// Reads the header of the tensor that `entry` tells about, and checks that it and the data lie in
// the file, one behind the other, and that it says what the entry says. What is read is counted as
// work of `budget`: many entries may tell of one header. Throws Error.
TensorHeader ReadTensorHeader(const ByteSourcePtr& file, const FileHeader& header,
                              const Entry& entry, Budget& budget);

}  // namespace ckptfs::tensorizer
