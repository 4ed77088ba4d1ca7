// Detects the format of a file or folder and reads the checkpoint.

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

// The same, with `name` as the name of the file in messages.
Checkpoint ReadCheckpoint(const ByteSourcePtr& file, std::string_view name,
                          const ReadOptions& options = {});

// The same for a file or a folder. A folder is a checkpoint in several files, or contains one file
// that is a checkpoint; a file may be the index of a checkpoint in several files.
Checkpoint ReadCheckpoint(const Source& source, const ReadOptions& options = {});

// Returns the format of a file; null if none matches. Does no I/O.
const Format* FormatOf(const Probe& probe);

// Returns the format that the head of a file identifies; null if its tail is needed. Does no I/O.
const Format* FormatOfHead(const Probe& probe);

// Whether the file of `source` is a checkpoint, or the index of one, by its head and its tail.
// Throws Error if they cannot be read.
bool IsCheckpoint(const Source& source);

// Returns the format of `file`, of which it reads the head and the tail; null if none matches.
// Throws Error if they cannot be read.
const Format* DetectFormat(const ByteSource& file);

// Prefetches the bytes of `file` that the detection of its format needs; its head has been fetched
// when it was opened. Throws Error.
void PrefetchProbe(const ByteSource& file);

// Reads the file of `source` with the budget of the caller. Messages need not name it.
Checkpoint ReadFile(const Source& source, const ReadOptions& options);

// Read a file or a folder whose format is known. Messages need not name it.
Checkpoint ReadCheckpoint(const Format& format, const ByteSourcePtr& file,
                          const ReadOptions& options);
Checkpoint ReadCheckpoint(const FolderFormat& format, const Folder& folder,
                          const std::string& index, const ReadOptions& options);

}  // namespace ckptfs
