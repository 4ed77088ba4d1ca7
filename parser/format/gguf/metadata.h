// The metadata of a file: keys, and values of thirteen types.
//
//   0 u8   1 i8   2 u16   3 i16   4 u32   5 i32   6 f32   7 bool   8 string   9 array
//   10 u64   11 i64   12 f64
//
// They are shown as one JSON object, and the types that JSON cannot express as another one: those
// of all values except texts and booleans, in brackets for arrays. A text may contain any bytes, as
// in vocabularies; invalid UTF-8 is shown as {"$bytes": hex}.

#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "parser/base/budget.h"
#include "parser/io/byte_source.h"
#include "parser/io/prefetch.h"

namespace ckptfs::gguf {

// How a file writes its numbers.
struct NumberFormat {
  bool is_big_endian = false;
  bool is_narrow = false;  // Counts, lengths and dimensions have 32 bits: version 1.
};

// Reads the fields of a header, whose length is not known in advance, a block at a time. Every read
// is checked; errors name the field and its position. Belongs to one thread.
class HeaderReader {
 public:
  // The maximum size of a header, in bytes: five times that of a model with half a million tokens.
  static constexpr uint64_t kMostBytes = 100'000'000;

  // Both must outlive the reader. Fetched bytes count as work of `budget`.
  HeaderReader(const ByteSource& file, Budget& budget)
      : file_(file), budget_(budget), prefetcher_(file, {.offset = 0, .length = file.size()}) {}

  // Sets the format of all numbers that follow.
  void SetFormat(const NumberFormat& form) { format_ = form; }
  const NumberFormat& format() const { return format_; }

  // Bytes of a count, a length or a dimension.
  uint64_t count_size() const { return format_.is_narrow ? sizeof(uint32_t) : sizeof(uint64_t); }

  uint64_t position() const { return position_; }

  // Bytes of the file after the current position.
  uint64_t remaining() const { return file_.size() - position_; }

  // Reads an integer.
  template <std::integral T>
  T Read(std::string_view field) {
    std::array<std::byte, sizeof(T)> bytes = {};
    Fill(bytes, field);
    if (format_.is_big_endian) std::ranges::reverse(bytes);
    return std::bit_cast<T>(bytes);
  }

  // Reads a count, a length or a dimension.
  uint64_t ReadCount(std::string_view field) {
    return format_.is_narrow ? Read<uint32_t>(field) : Read<uint64_t>(field);
  }

  // Reads a text, which is preceded by its length, into `text`. Throws Error if it is longer than
  // `most` bytes.
  void ReadText(std::string_view field, uint64_t most, std::string& text);

  // Throws Error unless the rest of the file can hold `count` items of at least `least` bytes each.
  // Messages call them `things`.
  void CheckCount(uint64_t count, uint64_t least, std::string_view things) const;

 private:
  // Reads the next bytes into `bytes`.
  void Fill(std::span<std::byte> bytes, std::string_view field);

  void Fetch();

  const ByteSource& file_;
  Budget& budget_;
  SequentialPrefetcher prefetcher_;
  NumberFormat format_;
  uint64_t position_ = 0;
  std::span<const std::byte> block_;  // The rest of it.
  std::array<std::byte, 65536> buffer_ = {};
};

// The position of a file in a model of several files.
struct Split {
  std::optional<uint64_t> number;   // Of this file, from 0 on.
  std::optional<uint64_t> count;    // Of files.
  std::optional<uint64_t> tensors;  // In all files.

  // Returns whether there are other files.
  bool is_part() const { return count.value_or(0) > 1; }
};

struct Metadata {
  std::string values;                 // JSON: {"general.architecture": "llama", ...}
  std::string types;                  // JSON: {"general.alignment": "u32", "a.b": "[string]", ...}
  std::optional<uint32_t> alignment;  // A power of two.
  Split split;
};

// Reads `count` pairs. The result, including copies made of it later, is charged to `budget`.
// Throws Error.
Metadata ReadMetadata(HeaderReader& reader, uint64_t count, Budget& budget);

}  // namespace ckptfs::gguf
