// A folder whose files belong to one checkpoint.

#pragma once

#include "parser/base/budget.h"
#include "parser/io/folder.h"

namespace ckptfs {

// Returns `folder`, of which each file that is opened is added to `budget`; null if that is null.
// `budget` must outlive the result.
FolderPtr MakeCountedFolder(FolderPtr folder, Budget& budget);

}  // namespace ckptfs
