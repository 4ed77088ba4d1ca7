// What -o strict asks for.

#pragma once

#include <string_view>

#include "parser/checkpoint.h"

namespace ckptfs {

// Does nothing if all tensors can be read, as far as the headers of the checkpoint tell. Else
// throws Error(EBADMSG) that tells the first one that cannot, and how many there are; `name` is
// what the message calls the checkpoint.
void CheckWhole(const Checkpoint& checkpoint, std::string_view name);

}  // namespace ckptfs
