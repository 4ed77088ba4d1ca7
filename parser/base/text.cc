#include "parser/base/text.h"

#include <algorithm>

namespace ckptfs {

std::string ToLower(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](char c) { return ToLower(c); });
  return lower;
}

std::string ToUpper(std::string_view text) {
  std::string upper(text);
  std::ranges::transform(upper, upper.begin(), [](char c) { return ToUpper(c); });
  return upper;
}

std::string_view Trim(std::string_view text, std::string_view blanks) {
  const size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

namespace utf8 {

Character Decode(std::string_view text) {
  constexpr Character kInvalid = {};
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return {.code = lead, .length = 1, .is_valid = true};

  size_t length = 0;
  char32_t least = 0;  // The least code of this length; less would be overlong.
  if (lead >= 0xC2 && lead < 0xE0) {
    length = 2;
    least = 0x80;
  } else if (lead >= 0xE0 && lead < 0xF0) {
    length = 3;
    least = 0x800;
  } else if (lead >= 0xF0 && lead < 0xF5) {
    length = 4;
    least = 0x10000;
  } else {
    return kInvalid;
  }
  if (text.size() < length) return kInvalid;
  char32_t code = lead & (0xFFU >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte & 0xC0U) != 0x80) return kInvalid;
    code = (code << 6U) | (byte & 0x3FU);
  }
  const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < least || code > 0x10FFFF || is_surrogate) return kInvalid;
  return {.code = code, .length = length, .is_valid = true};
}

std::string Encode(char32_t code) {
  const auto tail = [code](unsigned shift) {
    return static_cast<char>(0x80U | ((code >> shift) & 0x3FU));
  };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xC0U | (code >> 6U)), tail(0)};
  if (code < 0x10000) return {static_cast<char>(0xE0U | (code >> 12U)), tail(6), tail(0)};
  return {static_cast<char>(0xF0U | (code >> 18U)), tail(12), tail(6), tail(0)};
}

bool IsValid(std::string_view text) {
  while (!text.empty()) {
    const Character next = Decode(text);
    if (!next.is_valid) return false;
    text.remove_prefix(next.length);
  }
  return true;
}

std::string_view Truncate(std::string_view text, size_t size) {
  if (text.size() <= size) return text;
  size_t end = size;
  while (end > 0 && size - end < 4 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80) {
    --end;
  }
  return text.substr(0, end);
}

}  // namespace utf8
}  // namespace ckptfs
