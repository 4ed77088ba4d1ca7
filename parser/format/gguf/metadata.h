// The metadata of a file: keys, and values of thirteen types.
//
//   0 u8   1 i8   2 u16   3 i16   4 u32   5 i32   6 f32   7 bool   8 string   9 array
//   10 u64   11 i64   12 f64
//
// They are shown as one object in JSON, and what JSON does not tell as another one: the types of
// all that is no text and no truth value, that of an array in brackets. A text may be any bytes, as
// in vocabularies; one that is no UTF-8 is {"$bytes": hex}.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "parser/base/budget.h"
#include "parser/format/gguf/reader.h"

namespace ckptfs::gguf {

// What the metadata of one file of several says of that.
struct Split {
  std::optional<uint64_t> number;   // Of this file, from 0 on.
  std::optional<uint64_t> count;    // Of files.
  std::optional<uint64_t> tensors;  // In all files.

  // Whether there are others.
  bool is_part() const { return count.value_or(0) > 1; }
};

struct Metadata {
  std::string values;                 // JSON: {"general.architecture": "llama", ...}
  std::string types;                  // JSON: {"general.alignment": "u32", "a.b": "[string]", ...}
  std::optional<uint32_t> alignment;  // A power of two.
  Split split;
};

// Reads `count` pairs. What the result keeps, and what is made of it later, is charged to `budget`.
// Throws Error.
Metadata ReadMetadata(Reader& reader, uint64_t count, Budget& budget);

}  // namespace ckptfs::gguf
