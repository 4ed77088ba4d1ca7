// URIs of local files: "file:///dir/my%20model.pth", as RFC 8089 has them.

#pragma once

#include <string>

namespace ckptfs::file {

// Returns the path that `uri` names: what follows "file://", percent-decoded, or all of it if it
// does not begin so. The host may be left out or be "localhost". Throws Error(EINVAL) if it is
// another one, if the path is relative, or if a NUL is in it.
std::string PathOf(const std::string& uri);

}  // namespace ckptfs::file
