// The directory of a tar archive: its files and their locations.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/budget.h"
#include "parser/io/byte_source.h"

namespace ckptfs::tar {

struct Member {
  std::string name;
  uint64_t offset = 0;  // Where its bytes start in the source.
  uint64_t size = 0;    // In bytes, all of which exist.

  // Not empty: this is not a file, but a link or a device, without bytes.
  std::string error;
};

// Reads the headers of all members, in the formats ustar, pax and GNU. Directories are omitted. The
// result is sorted by name and has no two members of one name; names are relative, without NUL,
// backslashes, "..", "." and empty parts; a leading "./" is removed.
//
// The members are charged to `budget`, and never refunded. Throws Error: EBADMSG with the offset if
// the archive is corrupt or contradicts itself, ENOTSUP for sparse members, EFBIG.
std::vector<Member> ReadDirectory(const ByteSource& source, Budget& budget);

// Whether `head`, the first bytes of a file, begins an archive.
bool IsTar(std::span<const std::byte> head);

// Returns the name of the first file of the archive that begins with `head`, as stored. Empty if it
// is not in `head`, or this is not an archive.
std::string FirstName(std::span<const std::byte> head);

}  // namespace ckptfs::tar
