// Deflate, as zlib decodes it.
//
// A deflated stream is a row of blocks. To decode on from the beginning of a block, a decoder needs
// no more than the place of its first bit and the 32 KiB of output before it, to which the block
// may refer.

#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "parser/codec/decoder.h"

namespace ckptfs {

constexpr size_t kDeflateWindow = size_t{32} << 10;  // Bytes.

// Returns a decoder for a stream without a header. Its Run stops at the end of each block.
std::unique_ptr<Decoder> MakeDeflateDecoder();

// Returns a decoder that continues where another one stood when its unused_bits was `bits`, the
// last byte of its input was `last_byte`, and the last kDeflateWindow bytes of its output were
// `window`.
std::unique_ptr<Decoder> MakeDeflateDecoder(unsigned bits, std::byte last_byte,
                                            std::span<const std::byte> window);

}  // namespace ckptfs
