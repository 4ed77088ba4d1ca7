// The tables and long lists of ZANJ.

#pragma once

#include "parser/checkpoint.h"
#include "parser/codec/json_document.h"
#include "parser/format/archive/record.h"
#include "parser/format/zanj/externals.h"
#include "parser/format/zanj/tag.h"

namespace ckptfs::zanj {

// Returns the table that `node` is, whose tag says so. One that is damaged has an error. Throws
// Error(EFBIG).
Table TableOf(json::Node node, const Tag& tag, Externals& externals);

// Whether the rows of `table` may have arrays in them. The cells of data frames are plain.
bool MayHaveArrays(const Table& table);

}  // namespace ckptfs::zanj
