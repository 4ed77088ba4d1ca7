// Where a pickle ends that nothing but itself tells the length of.

#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "parser/base/budget.h"
#include "parser/io/byte_source.h"

namespace ckptfs::pickle {

// Returns the number of bytes of the pickle at the beginning of `data`, up to and with STOP. Reads
// it once, in pieces, and runs nothing: opcodes have arguments of known lengths. Counts what is
// read as work, for which the budget grows. Throws Error: EBADMSG that says the byte for what is no pickle, EFBIG for one that
// is longer than any we run.
uint64_t LengthOf(const Extent& data, Budget& budget);

// The same; nothing if a class, a function or a short text is called `name` before that.
std::optional<uint64_t> LengthUnless(const Extent& data, std::string_view name, Budget& budget);

}  // namespace ckptfs::pickle
