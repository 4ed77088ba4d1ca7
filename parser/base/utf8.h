// UTF-8, as far as names and messages need it.

#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ckptfs::utf8 {

// The character at the beginning of a text.
struct Character {
  char32_t code = 0;  // Meaningless if the bytes are no UTF-8.
  size_t length = 1;  // Bytes it takes; 1 if they are no UTF-8.
  bool is_valid = false;
};

// Decodes the first character of `text`, which must not be empty. Surrogates (U+D800 to U+DFFF),
// overlong forms and numbers above U+10FFFF are not valid.
Character Decode(std::string_view text);

// A character in UTF-8, or what that would be of a surrogate. Precondition: `code` is at most
// U+10FFFF.
std::string Encode(char32_t code);

// Whether all of `text` is valid.
bool IsValid(std::string_view text);

}  // namespace ckptfs::utf8
