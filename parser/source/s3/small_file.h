// Files of a few lines that the user has: settings, tokens.

#pragma once

#include <optional>
#include <string>

namespace ckptfs::s3 {

// Returns what is in the file; nothing if there is none. Throws Error, which names the file: what
// the system call says, or EFBIG if it is larger than 1 MiB.
std::optional<std::string> ReadSmallFile(const std::string& path);

// Returns the one line of the file, which must be there. Throws as ReadSmallFile does.
std::string ReadToken(const std::string& path);

}  // namespace ckptfs::s3
