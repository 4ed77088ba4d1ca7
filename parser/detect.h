// From bytes, or from files that lie side by side, to a checkpoint: which format it is.

#pragma once

#include <string>
#include <string_view>

#include "parser/checkpoint.h"
#include "parser/format.h"
#include "parser/io/byte_source.h"
#include "parser/io/folder.h"
#include "parser/read_options.h"

namespace ckptfs {

// Detects the format of a file and reads its headers. The result is valid in the sense of Validate.
// Throws Error; the message starts with the name of the file.
Checkpoint ReadCheckpoint(const ByteSourcePtr& file, const ReadOptions& options = {});

// The same; in messages the file is called `name`.
Checkpoint ReadCheckpoint(const ByteSourcePtr& file, std::string_view name,
                          const ReadOptions& options = {});

// The same of a file or a folder. A folder is a checkpoint in several files, or has one file that
// is a checkpoint; a file may be the index of a checkpoint in several.
Checkpoint ReadCheckpoint(const Source& source, const ReadOptions& options = {});

// Returns the format that a file looks like; null if there is none. Does no I/O.
const Format* FormatOf(const Probe& probe);

// Reads a file or a folder whose format is known. Messages need not name it.
Checkpoint ReadCheckpoint(const Format& format, const ByteSourcePtr& file,
                          const ReadOptions& options);
Checkpoint ReadCheckpoint(const FolderFormat& format, const Folder& folder,
                          const std::string& index, const ReadOptions& options);

}  // namespace ckptfs
