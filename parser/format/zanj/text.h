// Values of ZANJ's JSON as JSON again.

#pragma once

#include <string>

#include "parser/checkpoint.h"
#include "parser/codec/json_document.h"
#include "parser/format/zanj/externals.h"

namespace ckptfs::zanj {

// Returns a value that has no array and no table in it, with the types that JSON does not tell: its
// own, and in a note "python_types" (an object: JSON pointer -> type) those of what is inside. A
// set is a list; an object is one without its tag, which is its type; what ZANJ could only
// describe is its repr; NaN and infinities and ints beyond 64 bits are strings; a list that is
// outside is here, unless it was before. Throws Error(EFBIG), and what reading such a list throws.
Value ValueOf(json::Node node, Externals& externals);

// Appends a row of a table as Python writes it: as it would be in a member of the archive.
void AppendRow(std::string& out, json::Node node);

}  // namespace ckptfs::zanj
