// The directories of an archive.

#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/budget.h"
#include "parser/format/archive/files.h"
#include "parser/io/folder.h"

namespace ckptfs {

// A directory with the files and directories in it. Belongs to `files`, which must outlive it.
struct ArchiveNode {
  std::map<std::string, const ArchivedFile*, std::less<>> files;
  std::map<std::string, ArchiveNode, std::less<>> folders;
};

// Returns the root of `files`. Throws Error: EBADMSG if a path is none, EFBIG if it is too deep.
ArchiveNode TreeOf(const std::vector<ArchivedFile>& files, Budget& budget);

// Returns the bytes of `file`. Throws Error if they cannot be read.
ByteSourcePtr SourceOf(const ArchivedFile& file);

// A directory as a folder, which `node` and its files must outlive.
FolderPtr MakeArchiveFolder(const ArchiveNode& node, std::string name);

}  // namespace ckptfs
