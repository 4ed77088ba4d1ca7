// From a URI to a checkpoint: start here.

#pragma once

#include <string>
#include <string_view>

#include "parser/detect.h"  // IWYU pragma: export
#include "parser/io/folder.h"
#include "parser/io/source_options.h"

namespace ckptfs {

// Opens what `uri` names; without a scheme and "://" at its beginning it is a local path.
// Throws Error; the message starts with the URI, redacted.
Source OpenSource(const std::string& uri, const SourceOptions& options = {});

// Returns the scheme of `uri`, or nothing if it is a path.
std::string_view SchemeNameOf(std::string_view uri);

// Returns `uri` without what may be secret: user, password, query and fragment. A path is returned
// as it is.
std::string Redacted(std::string_view uri);

}  // namespace ckptfs
