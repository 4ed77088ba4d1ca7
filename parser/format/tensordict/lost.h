// What cannot be had: a warning, and what is shown in its place. All of it is charged to `budget`.
// `path` is what messages call it.

#pragma once

#include <string>
#include <string_view>

#include "parser/budget.h"
#include "parser/checkpoint.h"
#include "parser/error.h"

namespace ckptfs::tensordict {

// What messages call the member `key` of the collection that they call `path`, which is empty or
// ends with a dot. Long ones are cut.
std::string PathOf(std::string_view path, std::string_view key);

// What stands for a value that cannot be had.
Value Lost(std::string_view class_name, std::string_view why);

// Adds the warning that something about the collection `path` is lost.
void Warn(std::string_view path, const Error& error, Budget& budget, Checkpoint& checkpoint);

// A collection that is lost as a whole. Throws `error` if it is this process that lacks something.
Content LoseCollection(std::string_view path, const Error& error, Budget& budget,
                       Checkpoint& checkpoint);

// A tensor, of which `tensor` is what is known. Likewise.
Content LoseTensor(std::string_view path, Tensor tensor, const Error& error, Budget& budget,
                   Checkpoint& checkpoint);

}  // namespace ckptfs::tensordict
