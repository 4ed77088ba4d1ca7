// From what a URI names to an object.

#pragma once

#include <memory>

#include "parser/io/source_options.h"
#include "parser/source/redis/object.h"
#include "parser/source/redis/uri.h"

namespace ckptfs::redis {

// Opens the value or the model that `target` names. One round trip for a value; of a model, the
// length of every value is looked at. Throws Error: ENOENT if there is nothing, EACCES, EINVAL if
// it is no string, or as RemoteObject::Fetch does.
std::shared_ptr<const Object> OpenObject(Target target, const SourceOptions& options);

}  // namespace ckptfs::redis
