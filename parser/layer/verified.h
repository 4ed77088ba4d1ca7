// Verifies bytes against their hashes while they are read.
//
// A tensor is verified once every byte of it has been read, in any order, at the cost of the
// hashing alone: only pieces that are read out of order are read twice. A partial read verifies
// nothing, because a hash covers the whole tensor.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "parser/io/byte_source.h"

namespace ckptfs {

// The hashes that were saved with the bytes.
struct Hashes {
  std::optional<uint32_t> crc32;  // As of zlib.
  std::optional<std::array<std::byte, 32>> sha256;
};

// Returns a source with all bytes of `data.source` at the same offsets, and with the verdict on
// `data`. `prefix` was hashed before the bytes. `what` names them: "tensor 'fc.weight'". Without a
// hash, or if `data` is empty, returns `data.source` itself.
//
// Bytes are hashed in order when they are first read. Bytes that are read early are read again by
// the read that closes the gap before them, which then takes longer. If they are in too many ranges
// to be recorded, or cannot be read again, the verdict is deferred until they are read once more.
//
// Reads throw as those of `data.source` do. If the verdict is enforced and is kWrong, the read that
// completes it and all later ones that touch `data` throw Error(EIO).
//
// Preconditions: `data` lies within its source; `verification` is not null and can report.
ByteSourcePtr MakeVerified(const Extent& data, const Hashes& hashes,
                           std::span<const std::byte> prefix, std::string what,
                           std::shared_ptr<const Verification> verification);

}  // namespace ckptfs
