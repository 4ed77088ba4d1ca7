// Placeholders for corrupt tensors.

#pragma once

#include <cstdint>
#include <string_view>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/checkpoint.h"

namespace ckptfs {

// The maximum size of the file of a corrupt tensor, in bytes.
constexpr uint64_t kMaxPlaceholderSize = uint64_t{1} << 40;

// Returns the placeholder for a tensor that cannot be read: a file of its size whose reads fail,
// or, if the size is unknown, a value with the error.
Content MakePlaceholder(Tensor tensor, const Error& error);

// Adds the warning that the tensor `name` cannot be read. Charges `budget` for it and for the
// placeholder.
void WarnOfUnreadable(std::string_view name, const Error& error, Budget& budget,
                      Checkpoint& checkpoint);

}  // namespace ckptfs
