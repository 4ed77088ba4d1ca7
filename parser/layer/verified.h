// Bytes that are checked against hashes of them while they are read.
//
// Whoever reads all of a tensor, in whatever order, has then had it checked, at the price of the
// hashing alone: nothing is read for it that would not have been read anyway, but for pieces that
// come out of order. Who reads a part learns nothing: a hash is of everything.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "parser/base/verification.h"
#include "parser/io/byte_source.h"

namespace ckptfs {

// The hashes that were saved with the bytes.
struct Hashes {
  std::optional<uint32_t> crc32;  // As of zlib.
  std::optional<std::array<std::byte, 32>> sha256;
};

// Returns a source that has `data` where `data.source` has it, at the same offsets, and all else
// that it has, too; of what `data` is, it knows a verdict. `prefix` is what was hashed before the
// bytes. `what` names them: "tensor 'fc.weight'". Where there is nothing to check, because there is
// no hash or `data` is empty, it is `data.source` itself.
//
// Bytes are hashed when they are read for the first time, in their order. Those that are read early
// are read again when what was missing before them has come: by the read that brings it, which
// takes so much longer. If they lie in too many places to be remembered, or cannot be read again,
// the verdict waits until somebody reads them once more.
//
// Reads throw as those of `data.source` do. If the verdict is enforced and it is kWrong, the read
// that completes it and all later ones that touch `data` throw Error(EIO).
//
// Preconditions: `data` lies within its source; `verification` is not null and can report.
ByteSourcePtr MakeVerified(const Extent& data, const Hashes& hashes,
                           std::span<const std::byte> prefix, std::string what,
                           std::shared_ptr<const Verification> verification);

}  // namespace ckptfs
