// Reads the fields of a header whose length only its end tells.

#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "parser/base/budget.h"
#include "parser/io/byte_source.h"
#include "parser/io/prefetch.h"

namespace ckptfs::gguf {

// How a file writes its numbers.
struct Form {
  bool is_big_endian = false;
  bool is_narrow = false;  // Counts, lengths and dimensions have 32 bits: version 1.
};

// A decompressor that begins at the beginning of a file and fetches a block at a time. Every read is
// checked and throws Error that says what was being read and where. Belongs to one thread.
class Reader {
 public:
  // The most that a header may have, in bytes. That of a model with half a million tokens has a
  // fifth of it.
  static constexpr uint64_t kMostBytes = 100'000'000;

  // Both must outlive the reader; what it fetches counts as parsed.
  Reader(const ByteSource& file, Budget& budget) : file_(file), budget_(budget), onward_(file, 0) {}

  // How numbers are read from here on.
  void SetForm(const Form& form) { form_ = form; }
  const Form& form() const { return form_; }

  // Bytes of a count, a length or a dimension.
  uint64_t count_size() const { return form_.is_narrow ? sizeof(uint32_t) : sizeof(uint64_t); }

  uint64_t position() const { return position_; }

  // Bytes of the file behind the decompressor.
  uint64_t remaining() const { return file_.size() - position_; }

  // Reads an integer.
  template <std::integral T>
  T Read(std::string_view field) {
    std::array<std::byte, sizeof(T)> bytes = {};
    Fill(bytes, field);
    if (form_.is_big_endian) std::ranges::reverse(bytes);
    return std::bit_cast<T>(bytes);
  }

  // Reads a count, a length or a dimension.
  uint64_t ReadCount(std::string_view field) {
    return form_.is_narrow ? Read<uint32_t>(field) : Read<uint64_t>(field);
  }

  // Reads a text, whose length comes first, into `text`. It has `most` bytes at most.
  void ReadText(std::string_view field, uint64_t most, std::string& text);

  // Throws Error unless what is left of the file has room for `count` things of `least` bytes or
  // more each: "has 7 tensors, but ...".
  void CheckCount(uint64_t count, uint64_t least, std::string_view things) const;

 private:
  // Fills `bytes` with what comes next.
  void Fill(std::span<std::byte> bytes, std::string_view field);

  void Fetch();

  const ByteSource& file_;
  Budget& budget_;
  SequentialPrefetcher onward_;
  Form form_;
  uint64_t position_ = 0;
  std::span<const std::byte> block_;  // What is left of it.
  std::array<std::byte, 65536> buffer_ = {};
};

}  // namespace ckptfs::gguf
