// One element of an array, or a scalar of NumPy, in JSON.

#pragma once

#include <string>
#include <string_view>

#include "parser/codec/npy/type.h"

namespace ckptfs::npy {

// Appends the element that `bytes` are, in the byte order of `type` and as long as it says: numbers
// as numbers, complex ones as [real, imaginary], times in ISO 8601, durations with their unit,
// texts as texts, bytes and what has no other form in hex. What is appended has 4 bytes for each
// of `bytes` at most, and 64 more. `type` has no objects in it.
void AppendElement(std::string& out, const Type& type, std::string_view bytes);

}  // namespace ckptfs::npy
