// Pickles between whose opcodes lie bytes that are none, as joblib writes its arrays.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "parser/base/budget.h"
#include "parser/codec/pickle.h"
#include "parser/io/byte_source.h"

namespace ckptfs::pickle {

struct Gap {
  uint64_t length = 0;               // In bytes.
  std::optional<Value> replacement;  // Of the object before it; must live as long as the graph.
};

// Returns what lies behind the object `built` that has got a state; the byte behind that is at
// `position`. May throw Error.
using FindGap = std::function<Gap(const Value& built, uint64_t position)>;

// Runs the pickle at the beginning of `data` as Load does, but asks `find` after each BUILD. What
// the result points to is its own: nothing points into `data`. Throws Error as Load does, EBADMSG
// if a gap ends behind `data`, and what reading throws. Sets `length` to its bytes, gaps
// included.
Graph LoadWithGaps(const Extent& data, Budget& budget, const FindGap& find, uint64_t& length);

}  // namespace ckptfs::pickle
