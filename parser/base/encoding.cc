#include "parser/base/encoding.h"

#include <array>
#include <cstddef>

#include "parser/base/text.h"

namespace ckptfs {
namespace {

constexpr bool IsOdd(char c) {
  constexpr std::string_view kOdd = "/<>:\"|?*\\ %\x7f";
  return static_cast<unsigned char>(c) < 0x20 || kOdd.find(c) != std::string_view::npos;
}

// Indexed by the byte. A table, because it is used for each character of each key.
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

std::string PercentEncode(std::string_view text, std::string_view also_plain) {
  constexpr std::string_view kPlain = "-._~";
  std::string encoded;
  for (const char c : text) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || IsDigit(c) ||
                          kPlain.find(c) != std::string_view::npos ||
                          also_plain.find(c) != std::string_view::npos;
    if (is_plain) {
      encoded += c;
    } else {
      AppendEncoded(encoded, c);
    }
  }
  return encoded;
}

std::string PercentDecode(std::string_view text) {
  std::string decoded;
  while (!text.empty()) {
    const auto byte = text.front() == '%' && text.size() >= 3
                          ? ParseNumber<unsigned char>(text.substr(1, 2), 16)
                          : std::nullopt;
    decoded += byte ? static_cast<char>(*byte) : text.front();
    text.remove_prefix(byte ? 3 : 1);
  }
  return decoded;
}

}  // namespace ckptfs
