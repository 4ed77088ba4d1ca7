// Values as expressions of Python, for recipes.
//
// An expression needs no builtins. From the checkpoint it contains numbers, names of PyTorch's
// constants, and texts in which all characters except letters, digits and a few marks are escaped.

#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "parser/base/budget.h"
#include "parser/codec/pickle.h"

namespace ckptfs::torch {

// Returns `text` as a Python literal: "'block_size'". Nothing if it is long or not valid UTF-8.
std::optional<std::string> TextLiteral(std::string_view text);

// The name of a constant of the module torch: a dtype ("torch.int4"), a memory format, a
// quantization scheme. Nothing if `value` is not a known one.
std::optional<std::string> ConstantName(const pickle::Value& value);

// The expression for a value whose type JSON cannot express: dtypes, devices, layouts, tuples,
// torch.Size, bytes, floats that are not finite, big integers, and lists and dicts of these. A
// tensor in a list or tuple is the item at its index of `place`, itself an expression. Nothing if
// JSON expresses all, if anything in the value is of another class, or if the expression is too
// long.
std::optional<std::string> LiteralOf(const pickle::Value& value, std::string_view place,
                                     Budget& budget);

}  // namespace ckptfs::torch
