// How the data of one tensor is encrypted, as its header tells.
//
// The data is cut into chunks of 2 MiB, each of which is one message of libsodium's
// crypto_secretbox: XSalsa20 and Poly1305. What is encrypted is as long as the plain text and lies
// in its place; the authentication tags (MACs) of all chunks are in the header, one after another.
// Names, types and shapes are not encrypted.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "parser/io/byte_source.h"

namespace ckptfs::tensorizer {

// How the key comes from a passphrase: the parameters of libsodium's crypto_pwhash with Argon2id.
struct KeyDerivation {
  uint64_t passes = 0;  // "opslimit"
  uint64_t memory = 0;  // "memlimit": bytes.
  std::array<std::byte, 16> salt = {};

  bool operator==(const KeyDerivation&) const = default;
};

struct TensorEncryption {
  std::optional<KeyDerivation> derivation;  // None: the key was given as it is.
  uint64_t chunk_size = 0;                  // Plain bytes of a chunk; the last may have fewer.
  std::array<std::byte, 24> nonce = {};     // Of the first chunk; each next one is greater by 1.
  Extent macs;                              // 16 bytes for each chunk.
};

}  // namespace ckptfs::tensorizer
