// Values in which no others lie (numbers, texts, bytes, names), in JSON as value.h tells.

#pragma once

#include <cstdint>
#include <string>

#include "parser/base/budget.h"
#include "parser/codec/pickle.h"

namespace ckptfs::torch {

// What each value is charged for beside its text, so that empty ones are not for free.
constexpr uint64_t kCostOfValue = 16;  // In bytes.

// Whether `value` is such a value by its kind: neither a container nor a call.
bool IsLeaf(const pickle::Value& value);

// Appends `value`, for which IsLeaf holds, to `out`, and charges `budget` for it. Returns its type,
// which is empty if JSON tells it. Throws Error(EFBIG).
std::string AppendLeaf(std::string& out, const pickle::Value& value, Budget& budget);

// The same of a call that is understood as a leaf (Form::kLeaf), and means neither a number nor a
// complex number. What is none that we know is told as Python prints the call.
std::string AppendLeafCall(std::string& out, const pickle::Value& call, Budget& budget);

}  // namespace ckptfs::torch
