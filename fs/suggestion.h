// "Did you mean": the word of a list that is nearest to a misspelt one.

#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace ckptfs {

// How many letters of `a` must be inserted, removed, replaced or exchanged with the next one to get
// `b`; of two words longer than 64 bytes, more than that.
size_t EditDistance(std::string_view a, std::string_view b);

// Returns the word of `known` that is nearest to `word`, the first of several; empty if none is
// near. Upper case and dashes count as lower case and underscores.
std::string_view NearestWord(std::string_view word, std::span<const std::string_view> known);

}  // namespace ckptfs
