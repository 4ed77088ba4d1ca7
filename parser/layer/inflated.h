// A deflated run of bytes, as what it decodes to.

#pragma once

#include <cstdint>

#include "parser/byte_source.h"

namespace ckptfs {

// Returns the `size` bytes that `deflated` (a raw deflate stream) decodes to. The first read
// decodes all of it into an unlinked temporary file ($TMPDIR, else /var/tmp), from which every read
// is answered: random access costs disk, not memory. Several threads may read at once; one decodes.
//
// Reads throw Error(EIO) if the stream is damaged, is shorter or longer than `size`, or, where
// `crc` is not 0, has another CRC-32; ENOSPC and the like if there is no room for it.
ByteSourcePtr MakeInflated(Extent deflated, uint64_t size, uint32_t crc);

}  // namespace ckptfs
