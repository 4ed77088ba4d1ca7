// Text in JSON, as far as formats write it: strings and numbers.

#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace ckptfs::json {

// Appends `text` as a JSON string, quotes included, in ASCII. What is no UTF-8 becomes U+FFFD, but
// a lone surrogate (as Python's str may have) becomes its escape.
void AppendString(std::string& out, std::string_view text);

// Returns `text` as a JSON string.
std::string String(std::string_view text);

// Appends a number that reads back as the same double; NaN and infinities as the strings "NaN",
// "Infinity" and "-Infinity".
void AppendDouble(std::string& out, double number);

// Returns an object; the members are names, which need no escapes, and texts in JSON.
std::string Object(std::span<const std::pair<std::string_view, std::string>> members);

}  // namespace ckptfs::json
