// What stands for a tensor that a checkpoint has lost.

#pragma once

#include <cstdint>
#include <string_view>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/checkpoint.h"

namespace ckptfs {

// Bytes of a file that cannot be read, or not as a whole.
constexpr uint64_t kMostForDamaged = uint64_t{1} << 40;

// What is shown in the place of a tensor that cannot be read: a file of its size that cannot be
// read either, or a value that tells why, if the size is not known.
Content Damaged(Tensor tensor, const Error& error);

// Adds to `checkpoint` the warning that the tensor `name` cannot be read. Charges `budget` for it
// and for what is shown in the place of the tensor.
void WarnOfDamage(std::string_view name, const Error& error, Budget& budget,
                  Checkpoint& checkpoint);

}  // namespace ckptfs
