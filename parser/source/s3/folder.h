// A folder of a bucket: the objects whose keys begin alike, up to a '/'.

#pragma once

#include <memory>
#include <string>

#include "parser/io/folder.h"
#include "parser/source/s3/bucket.h"

namespace ckptfs::s3 {

// Returns what is below `prefix`, which is empty or ends with '/'. Asks for nothing until it is
// used, and lists each folder once. `name` is what messages call it; it ends with '/'.
FolderPtr MakeFolder(std::shared_ptr<Bucket> bucket, std::string prefix, std::string name);

}  // namespace ckptfs::s3
