// How formats plug in.

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

// What detection may look at, fetched once per mount.
struct Probe {
  uint64_t size;                    // Of the whole file, in bytes.
  std::span<const std::byte> head;  // Its first bytes, kProbeHead at most.
  std::span<const std::byte> tail;  // Its last bytes, kProbeTail at most.
};

constexpr size_t kProbeHead = 4096;
constexpr size_t kProbeTail = 66'000;  // The end record of a zip lies in there, if there is one.

// The format of a checkpoint in one file. Each file in parser/format/ that meson.build lists so
// defines one.
struct Format {
  std::string_view name;

  // Whether this looks like the format. Does no I/O and does not throw.
  bool (*matches)(const Probe& probe);

  // Reads the headers of `source`, which is a file; never reads tensor data, except to find out
  // whether a key is the right one. The caller validates the result, and sets its format to `name`
  // if it has none. Throws Error.
  Checkpoint (*parse)(const Source& source, const ReadOptions& options);

  // Whether files of this format hold anything, and checkpoints perhaps. In a directory with a
  // checkpoint they are not meant.
  bool is_archive = false;
};

// The format of a checkpoint in several files of one folder.
struct FolderFormat {
  std::string_view name;

  // Returns the file that tells about the others, which makes a folder one of this format; an empty
  // text if there is none. `files` is the listing of `folder`. Throws Error if it cannot be told.
  std::string (*find)(const Folder& folder, std::span<const std::string> files);

  // Whether a file that the user has named is such a file. Does no I/O and does not throw.
  bool (*is_index)(std::string_view file, const Probe& probe);

  // Reads the headers of all files that `index`, which is such a file, tells about. Damage of one
  // file is the error of its tensors. As for Format::parse; messages need not name the index.
  Checkpoint (*parse)(const Folder& folder, const std::string& index, const ReadOptions& options);
};

// All formats, in the order in which they are tried. See parser/meson.build.
std::span<const Format* const> Formats();
std::span<const FolderFormat* const> FolderFormats();

}  // namespace ckptfs
