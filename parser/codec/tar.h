// The directory of a tar archive: which files there are and where their bytes lie.

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
  uint64_t size = 0;    // How many there are; all of them are there.

  // Not empty: this is no file, but a link or a device, for which there are no bytes.
  std::string error;
};

// Reads the headers of all members, in the formats ustar, pax and GNU. Directories are omitted.
// The result is sorted by name and has no two members of one name; names are relative and free of
// NUL, backslashes, "..", "." and empty parts ("./" at their beginning is taken away).
//
// The members are charged to `budget`, and never refunded. Throws Error: EBADMSG with the offset
// if the archive is corrupt or contradicts itself, ENOTSUP for members whose bytes do not lie
// together (sparse ones), EFBIG.
std::vector<Member> ReadDirectory(const ByteSource& source, Budget& budget);

// Whether `head`, the first bytes of a file, begins an archive.
bool IsTar(std::span<const std::byte> head);

// Returns the name of the first file of the archive that begins with `head`, as its header has it.
// Empty if it is not in `head`, or this begins no archive.
std::string FirstName(std::span<const std::byte> head);

}  // namespace ckptfs::tar
