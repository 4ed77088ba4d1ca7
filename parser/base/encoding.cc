#include "parser/base/encoding.h"

#include <array>
#include <charconv>
#include <cstddef>

namespace ckptfs {
namespace {

constexpr bool IsOdd(char c) {
  constexpr std::string_view kOdd = "/<>:\"|?*\\ %\x7f";
  return static_cast<unsigned char>(c) < 0x20 || kOdd.find(c) != std::string_view::npos;
}

// Indexed by the byte: this is asked for each character of each key.
constexpr auto kIsOdd = [] {
  std::array<bool, 256> table = {};
  for (size_t i = 0; i < table.size(); ++i) table[i] = IsOdd(static_cast<char>(i));
  return table;
}();

}  // namespace

bool IsOddInKey(char c) { return kIsOdd[static_cast<unsigned char>(c)]; }

void AppendEncoded(std::string& out, char c) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  const auto byte = static_cast<unsigned char>(c);
  out += {'%', kHex[byte / 16], kHex[byte % 16]};
}

std::string EncodeKey(std::string_view key) {
  if (key.empty()) return "%";
  if (key == ".") return "%2E";
  if (key == "..") return "%2E%2E";
  std::string encoded;
  encoded.reserve(key.size());
  for (const char c : key) {
    if (IsOddInKey(c)) {
      AppendEncoded(encoded, c);
    } else {
      encoded += c;
    }
  }
  return encoded;
}

std::string PercentEncoded(std::string_view name) {
  std::string encoded;
  for (const char c : name) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' || c == '~';
    if (is_plain) {
      encoded += c;
    } else {
      AppendEncoded(encoded, c);
    }
  }
  return encoded;
}

std::string PercentDecoded(std::string_view text) {
  std::string decoded;
  while (!text.empty()) {
    unsigned char byte = 0;
    const char* const digits = text.data() + 1;
    if (text.size() >= 3 && text.front() == '%' &&
        std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      decoded += static_cast<char>(byte);
      text.remove_prefix(3);
    } else {
      decoded += text.front();
      text.remove_prefix(1);
    }
  }
  return decoded;
}

}  // namespace ckptfs
