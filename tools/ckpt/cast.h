// Floating-point tensors with another precision.

#pragma once

#include <optional>
#include <string_view>

#include "parser/base/dtype.h"
#include "parser/checkpoint.h"

namespace ckptfs::ckpt {

// Returns the type to which tensors can be cast that users call `name`: "bf16", "float16". Nothing
// if the name is unknown.
std::optional<Dtype> CastTypeNamed(std::string_view name);

// Whether elements of that type are floating-point numbers, which can be cast.
bool IsFloat(Dtype dtype);

// Returns `tensor` with its elements as `dtype`, rounded as PyTorch's to() does. A tensor whose
// elements are not floating-point numbers is returned as it is. `dtype` is one of CastTypeNamed.
// Throws Error(EOVERFLOW) if the result would be too large.
Tensor Cast(Tensor tensor, Dtype dtype);

}  // namespace ckptfs::ckpt
