// JSON of the values that are not tensors.
//
// None, bool, int, float, str, list and dict are what they are in JSON. Of the others: tuples and
// sets are lists, bytes are hex, complex numbers are [real, imaginary], NaN and infinities and ints
// beyond 64 bits are strings, names (dtypes, devices, functions) are as Python prints them, objects
// are {"class": ..., "state": ...}. A dict with int keys is an object whose keys are their digits;
// one with other or mixed keys is a list of pairs. The type beside it records which of these it is.

#pragma once

#include <string>

#include "parser/base/budget.h"
#include "parser/checkpoint.h"
#include "parser/codec/pickle.h"

namespace ckptfs::torch {

// How many containers may lie in one another; a pickler of Python gives up before that.
constexpr int kMaxDepth = 1000;

// Returns `value`, with the types that JSON cannot express: its own, and in a note "python_types"
// (an object: JSON pointer -> type) those of what is inside. A value that contains itself is cut
// there. Memory is taken from `budget`. Throws Error: EFBIG, and EOVERFLOW if a value is repeated
// for its batch size to more than the limit.
ckptfs::Value ValueOf(const pickle::Value& value, Budget& budget);

// The key of the member whose key in Python is `key`.
Key KeyOf(const pickle::Value& key);

}  // namespace ckptfs::torch
