// Texts of little-endian numbers, which headers of files consist of.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ckptfs::ckpt {

class LittleEndian {
 public:
  // Appends the last `bytes` bytes of `value`, 8 at most.
  void Add(uint64_t value, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) text_ += static_cast<char>(value >> (8 * i) & 0xFFU);
  }
  void Add(std::string_view text) { text_ += text; }

  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace ckptfs::ckpt
