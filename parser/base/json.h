// Writing JSON: strings, numbers, objects.

#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace ckptfs::json {

// Appends `text` as a JSON string in ASCII, including quotes. Invalid UTF-8 becomes U+FFFD, but a
// lone surrogate, which Python allows, becomes its escape.
void AppendString(std::string& out, std::string_view text);

// Returns `text` as a JSON string.
std::string String(std::string_view text);

// Appends a number that parses as the same double. NaN and infinities become the strings "NaN",
// "Infinity" and "-Infinity".
void AppendDouble(std::string& out, double number);

// Returns an object. Names must not need escapes; values are JSON.
std::string Object(std::span<const std::pair<std::string_view, std::string>> members);

}  // namespace ckptfs::json
