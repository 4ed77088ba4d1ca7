// Opens the file or folder of a URI: start here.

#pragma once

#include <functional>
#include <string>

#include "parser/detect.h"  // IWYU pragma: export
#include "parser/io/folder.h"
#include "parser/io/remote_object.h"
#include "parser/io/source_options.h"

namespace ckptfs {

// Returns an object as a source that caches fetched bytes. Callable from any thread.
using CacheObject = std::function<ByteSourcePtr(RemoteObjectPtr)>;

// Opens the file or folder `uri`; without a scheme and "://" it is a local path.
// Remote objects are read through `cache`, which must not be empty if the scheme is remote, and
// must be usable as long as the result. Throws Error; the message starts with the URI, redacted.
Source OpenSource(const std::string& uri, const SourceOptions& options = {},
                  const CacheObject& cache = {});

}  // namespace ckptfs
