// LZMA, as liblzma decodes it. In a zip archive a stream is
//
//   u8 major, u8 minor version of the coder, u16 5, 5 bytes of properties, the compressed bytes
//
// and ends after the size that the archive tells, or with a marker, or both.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "parser/codec/decoder.h"

namespace ckptfs {

// The largest dictionary that is given memory; what is decoded needs no larger one than itself.
constexpr uint64_t kMostOfDictionary = uint64_t{64} << 20;  // Bytes.

// For a stream that begins with `head` and decodes to `size` bytes.
std::unique_ptr<Decoder> MakeLzmaDecoder(std::span<const std::byte> head, uint64_t size);

}  // namespace ckptfs
