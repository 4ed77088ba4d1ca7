// A folder without one of the directories below it.

#pragma once

#include <string>

#include "parser/io/folder.h"

namespace ckptfs {

// Returns `folder` without the directory at `path`, which is relative to it: the mount point, where
// the program would read from itself.
FolderPtr MakeHidingFolder(FolderPtr folder, const std::string& path);

}  // namespace ckptfs
