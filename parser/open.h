// Opens the file or folder that a URI names: start here.

#pragma once

#include <string>
#include <string_view>

#include "parser/detect.h"  // IWYU pragma: export
#include "parser/io/folder.h"
#include "parser/io/source_options.h"

namespace ckptfs {

// Opens the file or folder `uri`; without a scheme and "://" it is a local path.
// Throws Error; the message starts with the URI, redacted.
Source OpenSource(const std::string& uri, const SourceOptions& options = {});

// Returns the scheme of `uri`; empty for a path.
std::string_view SchemeNameOf(std::string_view uri);

// Returns `uri` without parts that may be secret: user, password, query and fragment. A path is
// returned unchanged.
std::string Redacted(std::string_view uri);

}  // namespace ckptfs
