// Encrypted bytes, as what they decrypt to.
//
// They lie in a source as chunks, each a message of libsodium's crypto_secretbox whose
// authentication tag lies elsewhere. A chunk is authenticated as a whole before any of it is given
// to a reader, so a read opens all chunks that it touches; the cache keeps what the next read
// needs.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "parser/base/secret.h"
#include "parser/io/byte_source.h"
#include "parser/layer/block_cache.h"

namespace ckptfs {

struct Encryption {
  static constexpr size_t kKeySize = 32;    // Bytes.
  static constexpr size_t kNonceSize = 24;  // Bytes.
  static constexpr size_t kMacSize = 16;    // Bytes, of one tag.

  // Bytes of a chunk; the last one may be shorter. At least 1, at most kMostOfChunk.
  uint64_t chunk_size = 0;
  static constexpr uint64_t kMostOfChunk = uint64_t{64} << 20U;

  // A little-endian number: that of chunk i is greater by i. It wraps around.
  std::array<std::byte, kNonceSize> nonce = {};

  // The tags of all chunks, kMacSize each.
  Extent macs;
};

// Returns the plain bytes of `encrypted`; they are as many. A chunk that was changed, or that `key`
// does not fit, is EIO for reads that touch it, and for no other. The memory for opened chunks is
// that of `cache`, which all encrypted sources of a checkpoint share; where a chunk does not fit in
// there, reads take turns with a buffer for one chunk. `key` has kKeySize bytes.
// Throws Error(EBADMSG) if there is not one tag for each chunk.
ByteSourcePtr MakeDecrypted(Extent encrypted, const Encryption& encryption,
                            std::shared_ptr<const SecretBytes> key,
                            std::shared_ptr<BlockCache> cache);

// Returns whether `key` opens chunk `index`. Throws as reading `encrypted` does.
bool CanDecrypt(const Extent& encrypted, const Encryption& encryption, const SecretBytes& key,
                uint64_t index);

}  // namespace ckptfs
