// Numbers as the elements of arrays.

#pragma once

#include <string>

#include "parser/base/dtype.h"
#include "parser/codec/json_document.h"

namespace ckptfs::zanj {

// Whether Append knows the type: all numbers of one part and bool.
bool IsNumeric(Dtype dtype);

// Appends the element that `number` is, little-endian. The number must be what its type can hold
// exactly, for it was printed from such an element. Throws Error(EBADMSG) if it is not.
void AppendElement(std::string& out, Dtype dtype, json::Node number);

}  // namespace ckptfs::zanj
