// Arrays as NumPy prints them.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "parser/checkpoint.h"

namespace ckptfs::ckpt {

// Returns the elements of `tensor`, which has numbers (statistics.h), as numpy.array2string: of an
// array of more than 1,000 elements three at both ends of each axis. Reads the elements that are
// shown. Throws Error: EFBIG if the array has so many axes that more than 10,000 elements would be
// shown.
std::string ArrayText(const Tensor& tensor);

}  // namespace ckptfs::ckpt
