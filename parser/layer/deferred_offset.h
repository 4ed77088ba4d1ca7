// Bytes whose offset is known only after the header before them has been read.
//
// Many formats have a small header before each tensor, and an index elsewhere with nearly the same
// contents. On a disk, reading all headers before the mount costs nothing, but over a network it
// costs a round trip each. There the header is read with the first bytes of its tensor, and no byte
// is returned before it is validated.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "parser/io/byte_source.h"

namespace ckptfs {

// Validates the header of some bytes, and returns their offset in the source. Throws Error if it is
// corrupt. May be called by several threads at once.
using Locate = std::function<uint64_t(std::span<const std::byte> header)>;

// Returns a source with `data` at its provisional offset, data.offset, and all other bytes at their
// offsets in `data.source`. `locate` derives the actual offset from `header`, a range before the
// data. All of the data lies within the source at any offset that `locate` returns.
//
// Reads that touch `data` throw what `locate` throws, and as those of the source do.
ByteSourcePtr MakeDeferredOffset(const Extent& data, ByteRange header, Locate locate);

}  // namespace ckptfs
