// Values as expressions of Python, for recipes.
//
// An expression needs no builtins. Of the checkpoint it has numbers, the names of PyTorch's own
// constants, and texts in which all characters but letters, digits and a few marks are escaped.

#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "parser/base/budget.h"
#include "parser/codec/pickle.h"

namespace ckptfs::torch {

// `text` as Python spells it: "'block_size'". Nothing if it is long or no valid UTF-8.
std::optional<std::string> TextLiteral(std::string_view text);

// The name of a constant of the module torch: a dtype ("torch.int4"), a memory format, a scheme
// of quantization. Nothing if `value` is not a known one.
std::optional<std::string> ConstantName(const pickle::Value& value);

// The expression for a value whose type JSON cannot express: dtypes, devices, layouts, tuples,
// torch.Size, bytes, floats that are not finite, big integers, and lists and dicts of these. A
// tensor in a list or tuple is found under its index in `place`, itself an expression. Nothing if
// JSON expresses all, if anything in the value is of another class, or if the expression were long.
std::optional<std::string> LiteralOf(const pickle::Value& value, std::string_view place,
                                     Budget& budget);

}  // namespace ckptfs::torch
