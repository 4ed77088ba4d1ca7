// The checkpoint that is under a key, or under the keys of a model, as one object.

#pragma once

#include "parser/remote_object.h"
#include "parser/source/redis/uri.h"
#include "parser/source_options.h"

namespace ckptfs::redis {

// Opens what `target` names, and looks at the length of every value. Throws Error: ENOENT if there
// is nothing, EACCES, EINVAL if it is no string, or as RemoteObject::Fetch does.
RemoteObjectPtr OpenObject(Target target, const SourceOptions& options);

}  // namespace ckptfs::redis
