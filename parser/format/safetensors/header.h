// The header of a safetensors file.
//
//   offset  length
//        0       8   N, little-endian
//        8       N   JSON object: tensor name -> {dtype, shape, data_offsets: [begin, end]}, and
//                    optionally "__metadata__" -> {text: text}
//      8+N           the data; data_offsets are relative to this
//
// The tensors tile the data: they cover all of it, in any order, without gaps or overlaps. The file
// therefore contains nothing besides its tensors, and two tensors never share bytes.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/budget.h"
#include "parser/checkpoint.h"
#include "parser/io/byte_source.h"

namespace ckptfs::safetensors {

// The header's entry of a tensor.
struct TensorEntry {
  std::string name;             // UTF-8. Any text: empty, with NUL.
  std::string dtype;            // "F32"; may be unknown.
  std::vector<uint64_t> shape;  // In elements, which of F4 and F6 have less than a byte.
  uint64_t begin = 0;           // In the data, in bytes.
  uint64_t end = 0;             // The first byte after it.
};

// Returns the name of a dtype in headers; empty if the format lacks it.
std::string_view NameOf(Dtype dtype);

using MetadataEntry = std::pair<std::string, std::string>;

// Entries and metadata are in the order of the file and have unique keys: the last one of repeated
// metadata is kept, as in the reference.
struct SafetensorsHeader {
  std::vector<TensorEntry> entries;
  std::vector<MetadataEntry> metadata;
  uint64_t data_offset = 0;  // In the file, in bytes.
};

// Reads the header of `file` with all checks of the reference: the tensors tile the data, and each
// entry of a known dtype has the size that dtype and shape imply. The result is charged to
// `budget`. Throws Error.
SafetensorsHeader ReadHeader(const ByteSource& file, Budget& budget);

// Returns the tensor of an entry of `header`, the header of `file`. A dtype that ckptfs does not
// have is recorded in annotations.
Tensor TensorOf(const TensorEntry& entry, const SafetensorsHeader& header,
                const ByteSourcePtr& file);

}  // namespace ckptfs::safetensors
