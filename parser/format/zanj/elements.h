// The elements of arrays that ZANJ wrote into its JSON.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/dtype.h"
#include "parser/codec/json_document.h"
#include "parser/format/zanj/zip.h"

namespace ckptfs::zanj {

// These functions return little-endian bytes, which stay charged to the budget. They throw Error:
// EBADMSG for invalid data, EFBIG for too much.

// Encodes nested lists, one level for each dimension of `shape`. Each list may be a member of the
// archive. Precondition: IsNumeric(dtype).
std::string ElementsOfLists(json::Node data, Dtype dtype, const std::vector<uint64_t>& shape,
                            Externals& externals);

// Decodes hexadecimal digits.
std::string BytesOfHex(std::string_view text, Budget& budget);

// Decodes padded base64.
std::string BytesOfBase64(std::string_view text, Budget& budget);

// Returns whether AppendElement supports the type: bool, integers and real floating-point types.
bool IsNumeric(Dtype dtype);

// Appends `number` as a little-endian element. Throws Error(EBADMSG) if the type cannot represent
// it exactly: the number was printed from an element of that type.
void AppendElement(std::string& out, Dtype dtype, json::Node number);

}  // namespace ckptfs::zanj
