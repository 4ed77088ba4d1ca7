// The interface of formats.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "parser/checkpoint.h"
#include "parser/io/byte_source.h"
#include "parser/io/folder.h"
#include "parser/read_options.h"

namespace ckptfs {

// The bytes that detection may use, fetched once per mount.
struct Probe {
  uint64_t size;                    // Of the whole file, in bytes.
  std::span<const std::byte> head;  // Its first bytes, kProbeHead at most.
  std::span<const std::byte> tail;  // Its last bytes, kProbeTail at most. Empty: not fetched.
};

constexpr size_t kProbeHead = 4096;
constexpr size_t kProbeTail = 66'000;  // Contains the end record of a zip archive.

// The format of a checkpoint in one file; see parser/format/meson.build.
struct Format {
  std::string_view name;

  // Returns whether a file looks like this format. Does no I/O and does not throw.
  bool (*matches)(const Probe& probe);

  // Reads the headers of `source`, which is a file; never reads tensor data, except to test a key.
  // The caller validates the result, and sets its format to `name` unless it is set. Throws Error.
  Checkpoint (*parse)(const Source& source, const ReadOptions& options);

  // Files of this format may contain any files. They are ignored in a directory that has a
  // checkpoint.
  bool is_archive = false;

  // Returns whether the head alone identifies this format, so that the tail of a remote file is not
  // fetched. Like `matches`; null if the tail is always needed.
  bool (*is_certain)(const Probe& probe) = nullptr;

  // Whether `parse` begins with the tail.
  bool begins_with_tail = false;
};

// The format of a checkpoint in several files of one folder.
struct FolderFormat {
  std::string_view name;

  // Returns the index file, whose presence identifies this format; empty if there is none. `files`
  // is the listing of `folder`. Throws Error.
  std::string (*find)(const Folder& folder, std::span<const std::string> files);

  // Returns whether a file that the user has named is an index file. Does no I/O and does not
  // throw.
  bool (*is_index)(std::string_view file, const Probe& probe);

  // Reads the headers of all files that the index file `index` names. Tensors of a corrupt file
  // have an error. Otherwise like Format::parse; messages need not name the index.
  Checkpoint (*parse)(const Folder& folder, const std::string& index, const ReadOptions& options);
};

// Returns all formats, in the order of detection. See parser/meson.build.
std::span<const Format* const> Formats();
std::span<const FolderFormat* const> FolderFormats();

}  // namespace ckptfs
