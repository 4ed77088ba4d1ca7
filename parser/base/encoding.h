// Text encodings of bytes: hexadecimal digits, and percent-encoding of URIs and of file names.

#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace ckptfs {

// Not inline: clang may combine the data of one translation unit with the end of another.
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

// tensordict's encoding of keys as file names: odd characters are percent-encoded, which is
// injective.

// Whether tensordict encodes the character in a key.
bool IsOddInKey(char c);

// Appends `c` encoded: "%2F".
void AppendEncoded(std::string& out, char c);

// Returns the file name that tensordict >= 0.13 gives to a key, without its suffix.
std::string EncodeKey(std::string_view key);

// Percent-encodes all bytes of `text` except letters, digits, "-._~" and those of `also_plain`.
std::string PercentEncode(std::string_view text, std::string_view also_plain = "");

// Decodes `text`. Malformed sequences are kept.
std::string PercentDecode(std::string_view text);

}  // namespace ckptfs
