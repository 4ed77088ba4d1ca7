// JSON of the values that are not tensors.
//
// None, bool, int, float, str, list and dict are themselves in JSON. Of the others: tuples and sets
// are lists, bytes are hex, complex numbers are [real, imaginary], NaN and infinities and ints
// beyond 64 bits are strings, names (dtypes, devices, functions) are the text that Python prints,
// objects are {"class": ..., "state": ...}. A dict with int keys is an object whose keys are their
// digits; one with other or mixed keys is a list of pairs. The type beside it records which of
// these it is.

#pragma once

#include <string>

#include "parser/base/budget.h"
#include "parser/checkpoint.h"
#include "parser/codec/pickle.h"

namespace ckptfs::torch {

// The maximum depth of nested containers; Python's pickler fails before that.
constexpr int kMaxDepth = 1000;

// Returns `value`, with the types that JSON cannot express: its own, and in an annotation
// "python_types" (an object: JSON pointer -> type) those of its children. A value that contains
// itself is truncated there. Memory is charged to `budget`. Throws Error: EFBIG, and EOVERFLOW if a
// value is repeated for its batch size to more than the limit.
ckptfs::Value ValueOf(const pickle::Value& value, Budget& budget);

// Returns the key of a checkpoint for the Python key `key`.
Key KeyOf(const pickle::Value& key);

}  // namespace ckptfs::torch
