// What a tensor is called.
//
// A name is a text in UTF-8, or, if its first byte is 0x1E, a JSON array of the keys that lead to
// the tensor: texts and whole numbers. That is how state dicts with dicts and lists in them are
// written since tensorizer 2.9; an array of one text is the same name as that text alone.

#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "parser/checkpoint.h"

namespace ckptfs::tensorizer {

constexpr size_t kMaxDepth = 64;  // Keys of a name.

// Returns the keys, at least one. Texts are UTF-8 but for lone surrogates, which texts of Python
// may have, and which are encoded as other characters are. Throws Error(EBADMSG).
std::vector<Key> ReadName(std::string_view stored);

// Returns the keys, joined by dots, for messages.
std::string ShownName(std::string_view stored);

}  // namespace ckptfs::tensorizer
