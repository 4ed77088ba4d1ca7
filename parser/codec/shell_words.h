// A command line as words, without a shell.
//
// `credential_process = "/opt/my tools/sign" --role 'a b'` is split as Python's shlex does it,
// which is what the AWS tools use: blanks part words, quotes keep them, a backslash keeps the next
// character. Nothing is expanded: "$HOME" stays as it is.

#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ckptfs {

// Throws Error(EINVAL) if a quotation mark or a backslash has nothing that ends it.
std::vector<std::string> ShellWords(std::string_view line);

}  // namespace ckptfs
