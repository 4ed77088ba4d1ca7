// The arrays of ZANJ: inline in the JSON, or members of the archive written by numpy.save.

#pragma once

#include "parser/checkpoint.h"
#include "parser/codec/json_document.h"
#include "parser/format/zanj/value.h"
#include "parser/format/zanj/zip.h"

namespace ckptfs::zanj {

// Returns whether the elements of an array have a binary form. Lists of texts, times and objects do
// not; they are shown as values.
bool HasBytes(json::Node node, const Tag& tag);

// Reads the array `node` into `tensor`. Precondition: HasBytes. Throws Error: EBADMSG if the array
// is corrupt, ENOTSUP or EOVERFLOW if it cannot be a tensor, and the errors of reading its member;
// type and shape are then set as far as they are known. Inline elements are charged to the budget.
void FillArray(json::Node node, const Tag& tag, Externals& externals, Tensor& tensor);

// Returns an array that does not satisfy HasBytes as a value.
Value ValueOfArray(json::Node node, const Tag& tag, Externals& externals);

}  // namespace ckptfs::zanj
