#include "parser/base/json.h"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <iterator>

#include "parser/base/encoding.h"
#include "parser/base/text.h"

namespace ckptfs::json {
namespace {

// Returns the surrogate that three bytes of UTF-8 encode; 0 for any other bytes.
char32_t SurrogateAt(std::string_view text) {
  if (text.size() < 3 || text[0] != '\xED') return 0;
  const auto second = static_cast<unsigned char>(text[1]);
  const auto third = static_cast<unsigned char>(text[2]);
  if (second < 0xA0 || second > 0xBF || (third & 0xC0U) != 0x80) return 0;
  return 0xD000U | ((second & 0x3FU) << 6U) | (third & 0x3FU);
}

void AppendEscape(std::string& out, char32_t unit) {
  const char bytes[] = {static_cast<char>(unit >> 8U), static_cast<char>(unit & 0xFFU)};
  out += "\\u";
  AppendHex(out, {bytes, sizeof bytes});
}

void AppendAscii(std::string& out, char c) {
  switch (c) {
    case '"':
      out += "\\\"";
      break;
    case '\\':
      out += "\\\\";
      break;
    case '\n':
      out += "\\n";
      break;
    case '\t':
      out += "\\t";
      break;
    default:
      AppendEscape(out, static_cast<unsigned char>(c));
  }
}

// Appends the character at the beginning of `text`, which is not plain ASCII, and returns its
// length.
size_t AppendCharacter(std::string& out, std::string_view text) {
  const utf8::Character next = utf8::Decode(text);
  if (next.is_valid && next.length == 1) {
    AppendAscii(out, text[0]);
  } else if (next.is_valid && next.code > 0xFFFF) {
    AppendEscape(out, 0xD800U + ((next.code - 0x10000U) >> 10U));
    AppendEscape(out, 0xDC00U + ((next.code - 0x10000U) & 0x3FFU));
  } else if (next.is_valid) {
    AppendEscape(out, next.code);
  } else if (const char32_t surrogate = SurrogateAt(text); surrogate != 0) {
    AppendEscape(out, surrogate);
    return 3;
  } else {
    AppendEscape(out, 0xFFFD);
  }
  return next.length;
}

}  // namespace

void AppendString(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    size_t plain = 0;
    while (plain < text.size() && text[plain] >= 0x20 && text[plain] < 0x7f && text[plain] != '"' &&
           text[plain] != '\\') {
      ++plain;
    }
    out += text.substr(0, plain);
    text.remove_prefix(plain);
    if (!text.empty()) text.remove_prefix(AppendCharacter(out, text));
  }
  out += '"';
}

std::string String(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 2);
  AppendString(out, text);
  return out;
}

void AppendDouble(std::string& out, double number) {
  if (std::isnan(number)) {
    out += "\"NaN\"";
  } else if (std::isinf(number)) {
    out += number > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  } else {
    const size_t begin = out.size();
    fmt::format_to(std::back_inserter(out), "{}", number);  // The shortest that is exact.
    const bool is_float = out.find_first_of(".e", begin) != std::string::npos;
    if (!is_float) out += ".0";  // So that it parses as a float.
  }
}

std::string Object(std::span<const std::pair<std::string_view, std::string>> members) {
  std::string out = "{";
  for (const auto& [name, value] : members) {
    if (out.size() > 1) out += ',';
    out.append("\"").append(name).append("\":").append(value);
  }
  return out += '}';
}

}  // namespace ckptfs::json
