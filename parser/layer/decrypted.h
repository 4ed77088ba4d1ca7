// The plain bytes of encrypted ones.
//
// They are stored as chunks, each a message of libsodium's crypto_secretbox, whose authentication
// tags are stored separately. A chunk is authenticated as a whole before any of it is returned, so
// a read decrypts all chunks that it touches; the cache keeps them for the next read.

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

  // A little-endian number, to which i is added for chunk i, with wrap-around.
  std::array<std::byte, kNonceSize> nonce = {};

  // The tags of all chunks, kMacSize each.
  Extent macs;
};

// Returns the plain bytes of `encrypted`, which have the same size. If a chunk was changed, or
// `key` is wrong, reads that touch it fail with EIO. Decrypted chunks are in `cache`, which all
// encrypted sources of a checkpoint share; if a chunk does not fit there, reads take turns with a
// buffer for one chunk. `key` has kKeySize bytes. Throws Error(EBADMSG) unless there is one tag for
// each chunk.
ByteSourcePtr MakeDecrypted(Extent encrypted, const Encryption& encryption,
                            std::shared_ptr<const SecretBytes> key,
                            std::shared_ptr<BlockCache> cache);

// Returns whether `key` decrypts chunk `index`. Throws as reading `encrypted` does.
bool CanDecrypt(const Extent& encrypted, const Encryption& encryption, const SecretBytes& key,
                uint64_t index);

}  // namespace ckptfs
