// From a URI to a checkpoint: start here.

#pragma once

#include <string>
#include <string_view>

#include "parser/byte_source.h"
#include "parser/checkpoint.h"

namespace ckptfs {

// Opens what `uri` names; without a scheme and "://" at its beginning it is a local path.
// Throws Error; the message starts with the URI, redacted.
ByteSourcePtr OpenSource(const std::string& uri);

// Detects the format of `source` and reads its headers. The result is valid in the sense of
// Validate. Throws Error; the message starts with the name of the source.
Checkpoint ReadCheckpoint(const ByteSourcePtr& source);

// Returns the scheme of `uri`, or nothing if it is a path.
std::string_view SchemeNameOf(std::string_view uri);

// Returns `uri` without what may be secret: user, password, query and fragment. A path is returned
// as it is.
std::string Redacted(std::string_view uri);

}  // namespace ckptfs
