// The header and the index of a file, which begins with
//
//   0  magic "|TZR|"
//   5  data version      u32      the highest version that a feature of the file requires: 1 to 5
//   9  feature flags     32 bytes one little-endian number
//  41  bytes of data     u64      not used by readers; incorrect in files of some writers
//  49  unused            u64
//  57  tensors           u64      0 until the first write is complete
//  65  bytes of index    u64      262144 in files written by releases
//  73  the index, followed by header and data of each tensor
//
// Version 2 introduced types that NumPy does not have, version 3 encryption, version 4 tensors
// without data ("meta") and flags, version 5 dimensions of 2^32 and more. A file has the lowest
// version that supports its features.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "parser/base/budget.h"
#include "parser/codec/tensorizer_index.h"
#include "parser/io/byte_source.h"

namespace ckptfs::tensorizer {

struct FileHeader {
  static constexpr uint64_t kSize = 73;   // Bytes; where the index begins.
  static constexpr uint32_t kNewest = 5;  // Version, the first one whose index may have tags.

  uint32_t version = 0;
  uint64_t flags = 0;         // As the file has them.
  bool is_encrypted = false;  // Tensor headers have an encryption section.
  bool has_tags = false;      // Entries of the index begin with a version of their own.
  uint64_t data_bytes = 0;    // Unchecked.
  uint64_t count = 0;         // Tensors.
  uint64_t index_size = 0;    // Bytes.

  uint64_t index_end() const { return kSize + index_size; }  // Offset in the file.

  // Returns whether the file was written by an unreleased version: see RefuseDevelopmentLayout.
  bool is_unreleased() const { return version == kNewest && !has_tags; }
};

// Reads the header. Checks that the index lies within `file` and can hold all entries. Throws
// Error.
FileHeader ReadFileHeader(const ByteSource& file);

struct Index {
  std::vector<std::byte> bytes;     // Names and types of the entries point into it.
  std::vector<IndexEntry> entries;  // In the order of the file.
};

// Reads all entries. Checks only their tags, kinds and numbers of dimensions. The result is charged
// to `budget`. Throws Error.
Index ReadIndex(const ByteSource& file, const FileHeader& header, Budget& budget);

// Unreleased versions of tensorizer wrote three other layouts as data version 5. The release marks
// its files by a feature flag; a file of version 5 without that flag has the layout of version 4,
// or
//
//   tagged     entries of the index begin with a tag, as in the release;
//   grouped    the headers of all tensors are grouped after the index, before all data;
//   relative   a block of 45 bytes replaces the index, and contains the base of all offsets.
//
// A further layout, with padded headers, is version 4. They are not supported: reading
// a file with the wrong layout would return corrupt data.

// Is for files of version 5 without tags. ReadFileHeader has refused the layouts that the begin of
// the index identifies. Throws Error(ENOTSUP) if the data of a tensor does not follow its header.
void RefuseDevelopmentLayout(const ByteSource& file, const Index& index);

}  // namespace ckptfs::tensorizer
