// The entries of the central directory of a zip archive.

#pragma once

#include <cstdint>
#include <string>

#include "parser/base/byte_reader.h"
#include "parser/codec/zip.h"
#include "parser/codec/zip_end.h"

namespace ckptfs::zip {

// An entry of the central directory.
struct Entry {
  uint64_t position = 0;    // In the file.
  Member member;            // All but where its data begin and its error.
  uint64_t header = 0;      // Where the local header is; counts from the beginning of the archive.
  uint64_t descriptor = 0;  // Bytes that probably follow the data and say its sizes again.
  std::string damage;       // Why the bytes of the member cannot be read; empty if they can.
};

// Reads the next entry. Throws Error.
Entry ReadEntry(ByteReader& reader);

// Checks that a member lies before the central directory, so that all of its offsets are sound.
// Throws Error(EBADMSG).
void CheckRange(const Entry& entry, const End& end);

// Checks that a member that is only stored has one size. `position` is that of its entry. Throws
// Error(EBADMSG).
void CheckStoredSize(const Member& member, uint64_t position);

// Why the size of a member cannot be; empty if it can.
std::string DamageOfSize(const Member& member);

}  // namespace ckptfs::zip
