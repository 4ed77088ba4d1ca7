// The first 73 bytes of a file.
//
//   0  magic "|TZR|"
//   5  data version      u32      the highest that a feature of the file needs: 1 to 5
//   9  feature flags     32 bytes one little-endian number
//  41  bytes of data     u64      nobody relies on it, and some writers had it wrong
//  49  unused            u64
//  57  tensors           u64      0 until the first write has ended
//  65  bytes of index    u64      262144, but for files that no release has written
//  73  the index, and behind it headers and data of the tensors in turn
//
// Version 2 came with types that NumPy does not have, 3 with encryption, 4 with tensors without
// data ("meta") and with flags, 5 with dimensions of 2^32 and more. A file without the new feature
// has the old version; what a version allows, all higher ones do, too.

#pragma once

#include <cstdint>
#include <string_view>

#include "parser/io/byte_source.h"

namespace ckptfs::tensorizer {

constexpr std::string_view kMagic = "|TZR|";

struct FileHeader {
  static constexpr uint64_t kSize = 73;   // Bytes; where the index begins.
  static constexpr uint32_t kNewest = 5;  // Version, the first one whose index may have tags.

  uint32_t version = 0;
  uint64_t flags = 0;         // As the file has them.
  bool is_encrypted = false;  // Tensors have sections that tell how they are encrypted.
  bool has_tags = false;      // Entries of the index begin with a version of their own.
  uint64_t data_bytes = 0;    // What the writer says.
  uint64_t count = 0;         // Tensors.
  uint64_t index_size = 0;    // Bytes.

  uint64_t index_end() const { return kSize + index_size; }  // Where it is in the file.

  // Whether no release has written the file: see development.h.
  bool is_unreleased() const { return version == kNewest && !has_tags; }
};

// Reads and checks it: the index lies within `file`, and has room for as many entries. Throws
// Error.
FileHeader ReadFileHeader(const ByteSource& file);

}  // namespace ckptfs::tensorizer
