// Finds where a pickle ends, and runs one that has gaps, without reading it into memory first.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "parser/base/budget.h"
#include "parser/codec/pickle.h"
#include "parser/io/byte_source.h"

namespace ckptfs::pickle {

// Returns the number of bytes of the pickle at the beginning of `data`, up to and with STOP. Reads
// it once, in pieces, and runs nothing: opcodes have arguments of known lengths. Counts what is
// read as work, for which the budget grows. Throws Error: EBADMSG with the offset for an invalid
// pickle, EFBIG for one that is longer than the machine runs.
uint64_t LengthOf(const Extent& data, Budget& budget);

// The same; nothing if a class, a function or a short text is called `name` before that.
std::optional<uint64_t> LengthUnless(const Extent& data, std::string_view name, Budget& budget);

// Bytes between two opcodes of a pickle, as joblib writes its arrays.
struct Gap {
  uint64_t length = 0;               // In bytes.
  std::optional<Value> replacement;  // Of the object before it; must live as long as the graph.
};

// Returns what lies behind the object `built` that has got a state; the byte behind that is at
// `position`. May throw Error.
using FindGap = std::function<Gap(const Value& built, uint64_t position)>;

// Runs the pickle at the beginning of `data` as Load does, but calls `find` after each BUILD. The
// result owns its memory: nothing points into `data`. Throws Error as Load does, EBADMSG if a gap
// ends after `data`, and the errors of reading. Sets `length` to the length of the pickle, gaps
// included.
Graph LoadWithGaps(const Extent& data, Budget& budget, const FindGap& find, uint64_t& length);

}  // namespace ckptfs::pickle
