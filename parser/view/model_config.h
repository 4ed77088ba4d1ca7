// The config.json of a model repository.

#pragma once

#include "parser/io/folder.h"

namespace ckptfs {

// Whether the config.json of `folder` is that of a component of diffusers: it names a class. False
// if it is missing, too large or no JSON. Throws transient errors.
bool IsDiffusersComponent(const Folder& folder);

}  // namespace ckptfs
