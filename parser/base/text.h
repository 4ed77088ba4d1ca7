// Text as protocols and file formats define it: ASCII, independent of the locale, and UTF-8.

#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
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

// Returns `c` in upper case if it is an ASCII letter in lower case, else `c`.
constexpr char ToUpper(char c) {
  return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
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

// Removes the decimal digits at the beginning of `text` and returns their number. Returns nothing,
// and leaves `text`, if there are none, or they do not fit T.
template <std::integral T>
std::optional<T> TakeNumber(std::string_view& text) {
  T number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || text.front() == '-') return std::nullopt;
  text.remove_prefix(static_cast<size_t>(stop - text.data()));
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

namespace utf8 {

// The character at the beginning of a text.
struct Character {
  char32_t code = 0;  // Meaningless if the bytes are not UTF-8.
  size_t length = 1;  // In bytes; 1 if they are not UTF-8.
  bool is_valid = false;
};

// Decodes the first character of `text`, which must not be empty. Surrogates (U+D800 to U+DFFF),
// overlong forms and numbers above U+10FFFF are not valid.
Character Decode(std::string_view text);

// Encodes a character in UTF-8, and a surrogate likewise. Precondition: `code` is at most U+10FFFF.
std::string Encode(char32_t code);

// Whether all of `text` is valid.
bool IsValid(std::string_view text);

// Returns the beginning of `text`, of at most `size` bytes and without half a character at its end.
std::string_view Truncate(std::string_view text, size_t size);

}  // namespace utf8
}  // namespace ckptfs
