// The end of a zip archive: the records that locate the central directory.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "parser/io/byte_source.h"

namespace ckptfs::zip {

// Where the central directory is, checked against the file: it lies within it, and is long enough
// for its entries.
struct End {
  uint64_t directory = 0;  // Where in the file the central directory is.
  uint64_t size = 0;       // Of the central directory, in bytes.
  uint64_t entries = 0;    // Of the central directory.
  uint64_t archive = 0;    // Where in the file the archive begins; all offsets count from there.
};

constexpr uint64_t kEntrySize =
    46;  // Of an entry of the central directory without its name, bytes.

// Reads the end record, and the zip64 end record if there is one. Throws as ReadDirectory does.
End ReadEnd(const ByteSource& source);

// Where in `tail`, the last bytes of a file, the end record is: the last one whose comment fills
// the rest of the file or, if there is none, the last one.
std::optional<size_t> FindEndRecord(std::span<const std::byte> tail);

}  // namespace ckptfs::zip
