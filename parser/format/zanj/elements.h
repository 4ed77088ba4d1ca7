// The elements of arrays that ZANJ wrote into its JSON.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/dtype.h"
#include "parser/codec/json_document.h"
#include "parser/format/zanj/externals.h"

namespace ckptfs::zanj {

// The functions below return bytes that stay charged to the budget. They throw Error: EBADMSG if
// the data are not what they should be, EFBIG if they are too many.

// Elements that are lists in lists, one list in another for each dimension of `shape`, little-
// endian. Each list may be outside. Precondition: IsNumeric(dtype).
std::string ElementsOfLists(json::Node data, Dtype dtype, const std::vector<uint64_t>& shape,
                            Externals& externals);

// Bytes that are two hex digits each.
std::string BytesOfHex(std::string_view text, Budget& budget);

// Bytes in base64, padded.
std::string BytesOfBase64(std::string_view text, Budget& budget);

}  // namespace ckptfs::zanj
