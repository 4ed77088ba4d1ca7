// JSON that Python wrote, as values.

#pragma once

#include <string>
#include <string_view>

#include "parser/base/budget.h"
#include "parser/checkpoint.h"
#include "parser/codec/json_document.h"

namespace ckptfs::tensordict {

// Returns `node` as a value: strict JSON, in which NaN, infinities and ints beyond 64 bits are
// texts; the types of these are told beside it, inside of it in a note "python_types" (an object:
// JSON pointer -> type). Of a key that an object has twice the last value counts, as in Python.
// Memory is charged to `budget`. Throws Error(EFBIG).
Value ValueOf(json::Node node, Budget& budget);

}  // namespace ckptfs::tensordict
