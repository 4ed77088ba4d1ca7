// The encryption of tensors: parameters, keys.
//
// The data of a tensor is encrypted in chunks of 2 MiB, each a message of libsodium's
// crypto_secretbox: XSalsa20 and Poly1305. The ciphertext has the length and the place of the plain
// text; the header contains the authentication tags (MACs) of all chunks, one after another. Names,
// types and shapes are not encrypted.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/secret.h"
#include "parser/io/byte_source.h"
#include "parser/layer/decrypted.h"

namespace ckptfs::tensorizer {

// The parameters of libsodium's crypto_pwhash with Argon2id, which derives a key from a passphrase.
struct KeyDerivation {
  uint64_t passes = 0;  // "opslimit"
  uint64_t memory = 0;  // "memlimit": bytes.
  std::array<std::byte, 16> salt = {};

  bool operator==(const KeyDerivation&) const = default;
};

struct TensorEncryption {
  std::optional<KeyDerivation> derivation;  // Unset: a key was used, not a passphrase.
  Encryption chunks;
};

// Reads the encryption section of a tensor header, which lies at `extent`; the tensor has
// `data_size` bytes of data. Returns nothing if the data is not encrypted. Checks that there is one
// tag for each chunk and that no chunk exceeds Encryption::kMostOfChunk; does not read the tags.
// Throws Error(EBADMSG).
//
// The section is a number of records (u16), each with a length (u64) and a type (u16):
//
//   1  key derivation: u16 method (1: Argon2id of libsodium), u64 passes, u64 bytes of memory, i32
//      algorithm, u16 length of the salt, salt
//   2  data in chunks: u64 bytes of a chunk, nonce, u64 number of tags, tags
//   3  data in one message: nonce, tag
//
// No release writes type 3. A tensor without data has a section without records.
std::optional<TensorEncryption> ReadEncryption(const Extent& extent, uint64_t data_size);

// An encrypted tensor with data; `encryption` is from ReadEncryption, and all of it lies in the
// file.
struct EncryptedTensor {
  Extent data;
  TensorEncryption encryption;
};

// The keys of one file. Belongs to one thread.
//
// A key is either 32 bytes given by the user or derived from a passphrase with the parameters in
// the headers of the tensors; all headers of a file have the same parameters, unless it was
// crafted. A wrong key would be noticed only when the first tensor is read, long after the mount,
// so keys are tested on a few chunks first.
class KeyRing {
 public:
  // `ask` may be empty: then there is no secret. `budget` must outlive this.
  KeyRing(AskSecret ask, Budget& budget) : ask_(std::move(ask)), budget_(budget) {}

  // Finds and tests the keys of `tensors`, all encrypted tensors of the file. Asks the user for the
  // secret at most once. Call once. Throws Error: EKEYREJECTED if the secret is not that of the
  // file, EFBIG if a key derivation exceeds the limits of time or memory, ENOMEM, and the errors of
  // `ask` and of reading the file.
  void Open(std::span<const EncryptedTensor> tensors);

  // Returns whether the user has given a secret.
  bool has_secret() const { return !origin_.empty(); }

  // Returns the key of one of these tensors; null without one, for the reason NoKeyReason.
  std::shared_ptr<const SecretBytes> KeyFor(const TensorEncryption& encryption) const;

  // Returns why there is no key, for a message about a tensor: "it is encrypted, and ...".
  std::string NoKeyReason(const TensorEncryption& encryption) const;

 private:
  struct Derived {
    KeyDerivation derivation;
    std::shared_ptr<const SecretBytes> key;
  };

  void Derive(const Secret& passphrase, std::span<const EncryptedTensor> tensors);
  void Test(std::span<const EncryptedTensor> tensors) const;

  const AskSecret ask_;
  Budget& budget_;
  std::string origin_;                      // Of the secret.
  std::shared_ptr<const SecretBytes> key_;  // Of all tensors; null if keys are derived.
  std::vector<Derived> derived_;
};

}  // namespace ckptfs::tensorizer
