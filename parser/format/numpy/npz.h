// Archives of numpy.savez and numpy.savez_compressed.

#pragma once

#include "parser/checkpoint.h"
#include "parser/format.h"
#include "parser/format/archive/members.h"

namespace ckptfs::numpy {

// Whether the names of the members are those of arrays, or the archive is empty, as that of
// numpy.savez() without arguments.
bool IsZip(const Members& members);

// Reads the head of each of the `members` of the archive `source`. An error in one array is the
// error of its tensor. Throws Error: EBADMSG if two arrays have the same key, the error of the
// first array if no array can be read, EFBIG.
Checkpoint ReadZip(const Source& source, Members members, const ReadOptions& options);

}  // namespace ckptfs::numpy
