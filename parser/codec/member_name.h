// The names of members of archives.

#pragma once

#include <string_view>

namespace ckptfs {

// Throws Error if `name` cannot be unpacked below a directory: EBADMSG if it is empty
// or absolute, or has a NUL, a backslash, or a part that is empty, "." or ".."; EFBIG if it is too
// long.
void CheckMemberName(std::string_view name);

}  // namespace ckptfs
