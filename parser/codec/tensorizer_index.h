// The index of a tensorizer file, which the format reads from the file, and Redis from the value
// with the beginning of a model (source/redis/key_table.h).

#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "parser/base/byte_reader.h"

namespace ckptfs::tensorizer {

// The first bytes of a file.
constexpr std::string_view kMagic = "|TZR|";

// The feature flag of a file whose entries have tags.
constexpr uint64_t kHasTags = 2;

enum class Kind : uint8_t { kParameter, kBuffer, kStateDict };

// An entry of the index. The header of the tensor repeats most of it.
//
//   tag                  u32, only in files with tags: 1, or 5 if sizes have 64 bits
//   name                 u16 length, bytes: see ReadName
//   kind                 u8
//   dtype                u8 length, bytes: see ReadDtype
//   shape                u8 number of dimensions; u32 each, or u64 if the tag is 5
//   offset of header     u64, in the file
//   offset of data       u64, in the file
//   bytes of data        u64
//
// Entries are contiguous; the rest of the index, whose size is chosen in advance, is zeros.
struct IndexEntry {
  static constexpr uint32_t kTag = 1;
  static constexpr uint32_t kLongTag = 5;

  uint32_t tag = kTag;
  std::string_view name;   // As stored.
  std::string_view dtype;  // As stored.
  Kind kind = Kind::kParameter;
  std::vector<uint64_t> shape;
  uint64_t header_offset = 0;
  uint64_t data_offset = 0;
  uint64_t data_size = 0;  // Bytes.

  // Whether sizes have 64 bits, here and in the header of the tensor.
  bool is_long() const { return tag == kLongTag; }
};

// Reads an entry, whose texts point into the buffer of `reader`. Checks no value: the tag and the
// kind may be unknown. Throws Error(EBADMSG) if it is truncated.
IndexEntry ReadIndexEntry(ByteReader& reader, bool has_tags);

// Reads a shape of `count` sizes.
std::vector<uint64_t> ReadShape(ByteReader& reader, size_t count, bool is_long);

}  // namespace ckptfs::tensorizer
