// The arrays of ZANJ: numbers in the JSON, or members of the archive that numpy.save wrote.

#pragma once

#include "parser/checkpoint.h"
#include "parser/codec/json_document.h"
#include "parser/format/zanj/externals.h"
#include "parser/format/zanj/tag.h"

namespace ckptfs::zanj {

// Whether an array has elements that are bytes. Texts, times and objects in lists are not: they
// are values in JSON.
bool HasBytes(json::Node node, const Tag& tag);

// Fills in the array that `node` is, whose tag says so. Precondition: HasBytes. What can be told of
// the array is there also when this throws Error: EBADMSG if it is damaged, ENOTSUP and EOVERFLOW
// for what no tensor can be, and what reading its member throws. Its elements, where they are not
// in a member, are charged to the budget.
void FillArray(json::Node node, const Tag& tag, Externals& externals, Tensor& tensor);

// Returns the value that an array without bytes is.
Value ValueOfArray(json::Node node, const Tag& tag, Externals& externals);

}  // namespace ckptfs::zanj
