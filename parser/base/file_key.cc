#include "parser/base/file_key.h"

#include <array>
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

}  // namespace ckptfs
