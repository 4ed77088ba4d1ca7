// Bytes as hexadecimal digits.

#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace ckptfs {

// Not inline: clang folds its data to a literal of each file, but may take its end from another one.
constexpr std::string_view kHexDigits = "0123456789abcdef";

// Appends two digits for each byte.
inline void AppendHex(std::string& out, std::span<const std::byte> bytes) {
  for (const std::byte byte : bytes) {
    out += kHexDigits[std::to_integer<size_t>(byte >> 4U)];
    out += kHexDigits[std::to_integer<size_t>(byte & std::byte{0xF})];
  }
}

inline void AppendHex(std::string& out, std::string_view bytes) {
  AppendHex(out, std::as_bytes(std::span(bytes)));
}

inline std::string Hex(std::span<const std::byte> bytes) {
  std::string out;
  out.reserve(2 * bytes.size());
  AppendHex(out, bytes);
  return out;
}

}  // namespace ckptfs
