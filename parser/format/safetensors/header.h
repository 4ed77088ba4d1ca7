// The header of a safetensors file.
//
//   offset  length
//        0       8   N, little-endian
//        8       N   JSON object: tensor name -> {dtype, shape, data_offsets: [begin, end]}, and
//                    perhaps "__metadata__" -> {text: text}
//      8+N           the data; data_offsets count from here
//
// The tensors tile the data: they cover it from its first byte to its last, in any order, without
// holes or overlaps. So nothing is in such a file that its header does not tell, and two tensors
// never share bytes.

#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "parser/base/budget.h"
#include "parser/checkpoint.h"
#include "parser/io/byte_source.h"

namespace ckptfs::safetensors {

// A tensor as the header has it.
struct Entry {
  std::string name;             // UTF-8. Any text: empty, with NUL.
  std::string dtype;            // "F32"; perhaps one that we do not know.
  std::vector<uint64_t> shape;  // Of F4 and F6 it counts elements that are no whole bytes.
  uint64_t begin = 0;           // In the data, in bytes.
  uint64_t end = 0;             // The first byte after it.
};

using MetadataEntry = std::pair<std::string, std::string>;

// Both are in the order of the file, and their keys are unique: of metadata with one key the last
// is kept, as the reference does.
struct Header {
  std::vector<Entry> entries;
  std::vector<MetadataEntry> metadata;
  uint64_t data_offset = 0;  // In the file, in bytes.
};

// Reads the header of `file` and checks all that the reference checks: what it returns tiles the
// data, and each entry of a known dtype has the size that dtype and shape imply. What the result
// keeps is charged to `budget`. Throws Error.
Header ReadHeader(const ByteSource& file, Budget& budget);

// Returns the tensor that an entry of `header`, which is that of `file`, tells about. A dtype that
// has no place in ours is told in annotations.
Tensor TensorOf(const Entry& entry, const Header& header, const ByteSourcePtr& file);

}  // namespace ckptfs::safetensors
