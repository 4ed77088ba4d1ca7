// Paths of local files: finds files below a directory without following untrusted symbolic links,
// and parses file URIs.
//
// Users with write permission for the directory of a checkpoint can create links there, and the
// mounting user can often read more than they can: root can read /etc/shadow, and with -o
// allow_other every user would then read it as a tensor. Links are followed by the rule of the
// kernel's fs.protected_symlinks, and by a stricter one with allow_other: see LinkPolicy.

#pragma once

#include <string>

#include "parser/base/fd.h"
#include "parser/io/location.h"
#include "parser/io/source_options.h"

namespace ckptfs::file {

// Opens `path`, relative to the directory `root`, with O_PATH, which has no effect on devices and
// pipes. The descriptor is never that of a link. Each link is read and followed one component at a
// time, with its directory held open, so a link that is replaced meanwhile is checked like the
// first one. Throws Error: EACCES if `policy` refuses a link.
Fd OpenPath(const Fd& root, const std::string& path, LinkPolicy policy);

// Opens the file of `path`, an O_PATH descriptor, for reading. Throws Error: EISDIR or EINVAL,
// without opening it, if it is not a regular file.
Fd OpenForReading(const Fd& path);

// Returns the path of a file URI (RFC 8089) such as "file:///dir/my%20model.pth", percent-decoded;
// of a location without a scheme its text. Throws Error(EINVAL) if the host is neither empty nor
// "localhost", if the path is relative, or if it contains a NUL.
std::string PathOf(const Location& location);

}  // namespace ckptfs::file
