// Bytes in a pickle. Protocols 3 to 5 have opcodes for them; protocol 2 has not, so Python writes
// the call _codecs.encode(text, "latin1"), in whose text each character is a byte.

#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "parser/budget.h"
#include "parser/codec/pickle.h"

namespace ckptfs::torch {

// The bytes that `text` spells: nothing if a character is none.
std::optional<std::string> BytesOfLatin1(std::string_view text);

// The bytes of `value` if it is bytes in any spelling, or the str of a Python 2: nothing if it is
// something else. The view points into the pickle or into `decoded`.
std::optional<std::string_view> BytesOf(const pickle::Value& value, std::string& decoded,
                                        Budget& budget);

}  // namespace ckptfs::torch
