// Bytes whose place is only known when what precedes them has been read.
//
// Many formats put a small header before each tensor, and an index somewhere else that tells nearly
// all of what it says. To read each of them before the mount costs nothing on a disk, but a round
// trip each over a network. So it is read there with the first bytes of the tensor, which lie
// behind it; and no byte is given to anybody before it was found to be right.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "parser/io/byte_source.h"

namespace ckptfs {

// Checks the header of some bytes, and returns where in the source they begin. Throws Error if it
// is damaged. May be called by several threads at once.
using Locate = std::function<uint64_t(std::span<const std::byte> header)>;

// Returns a source that has `data` where it is expected to be, which is where `data` says, and all
// else where `data.source` has it. Where the bytes are in truth, `locate` knows from the bytes of
// `header`, a range before them. All of them lie within the source wherever `locate` says that they
// begin.
//
// Reads that touch `data` throw what `locate` throws, and as those of the source do.
ByteSourcePtr MakeDeferredOffset(const Extent& data, ByteRange header, Locate locate);

}  // namespace ckptfs
