// Opening several files of a folder.

#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "parser/base/error.h"
#include "parser/io/byte_source.h"
#include "parser/io/folder.h"

namespace ckptfs {

// A file, or the error of opening it.
struct OpenedFile {
  ByteSourcePtr file;          // Null if there is an error.
  std::optional<Error> error;  // Thrown by Folder::Open.
};

// Opens the files of `folder` that have these names; several at once, if each may cost a round
// trip. Throws Error, whose message names the file, only if this process lacks something.
std::vector<OpenedFile> OpenFiles(const Folder& folder, std::span<const std::string> names);

// The same by Folder::OpenData, for files whose first bytes may not be needed.
std::vector<OpenedFile> OpenDataFiles(const Folder& folder, std::span<const std::string> names);

// Like OpenFiles, but throws the first error. Its message does not name the file.
std::vector<ByteSourcePtr> OpenAllFiles(const Folder& folder, std::span<const std::string> names);

}  // namespace ckptfs
