// Several files of a folder.

#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "parser/base/error.h"
#include "parser/io/byte_source.h"
#include "parser/io/folder.h"

namespace ckptfs {

// A file, or why it cannot be had.
struct OpenedFile {
  ByteSourcePtr file;          // Null if it cannot be had.
  std::optional<Error> error;  // As Folder::Open has thrown it.
};

// Opens the files of `folder` that have these names; several at once, if each may cost a round
// trip. Throws Error, whose message names the file, only if this process lacks something.
std::vector<OpenedFile> OpenFiles(const Folder& folder, std::span<const std::string> names);

// The same, but throws the first error there is. Its message does not name the file.
std::vector<ByteSourcePtr> OpenAllFiles(const Folder& folder, std::span<const std::string> names);

}  // namespace ckptfs
