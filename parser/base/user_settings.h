// Settings of the user outside the command line: environment variables, and small files.

#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ckptfs {

// Returns the value of the variable `name`; empty if it is not set. No thread may change the
// environment meanwhile, as no thread of ckptfs does.
std::string GetEnvironment(const char* name);

// Returns the content of a file. `kind` is for messages: "netrc file". Throws Error with the name
// of the file: the errno of the system call, or EFBIG if it is larger than 1 MiB.
std::string ReadSmallFile(const std::string& path, std::string_view kind);

// As above, but returns nothing if the file does not exist.
std::optional<std::string> ReadOptionalFile(const std::string& path, std::string_view kind);

// Returns the token in `text` without the blanks around it. `name` is for messages: "the token in
// HF_TOKEN". Throws Error(EINVAL) if it is empty, or not one word of printable ASCII characters,
// which could break out of its header.
std::string ParseToken(std::string_view text, std::string_view name);

// Returns the token in a file. Throws as the functions above.
std::string ReadToken(const std::string& path);

}  // namespace ckptfs
