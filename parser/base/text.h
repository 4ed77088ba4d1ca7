// Text as protocols and file formats define it: ASCII, independent of the locale.

#pragma once

#include <charconv>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace ckptfs {

// Space, tab, line feed and carriage return: white space of JSON, HTTP and shell words.
constexpr std::string_view kBlanks = " \t\r\n";

constexpr bool IsBlank(char c) { return kBlanks.find(c) != std::string_view::npos; }

constexpr bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Returns `c` in lower case if it is an ASCII letter in upper case, else `c`.
constexpr char ToLower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

std::string ToLower(std::string_view text);
std::string ToUpper(std::string_view text);

// Returns `text` without the characters of `blanks` at its ends.
std::string_view Trim(std::string_view text, std::string_view blanks = kBlanks);

// Parses all of `text` as a number in `base`: digits, with a '-' before them if T is signed.
// Returns nothing if `text` is empty, contains any other character (blanks, '+', "0x"), or does not
// fit T.
template <std::integral T>
std::optional<T> ParseNumber(std::string_view text, int base = 10) {
  T number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number, base);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

// Parses all of `text` as a decimal floating-point number ("1.5", "-2e9", "inf", "nan").
template <std::floating_point T>
std::optional<T> ParseNumber(std::string_view text) {
  T number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

}  // namespace ckptfs
