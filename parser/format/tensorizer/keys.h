// The keys of an encrypted file: where they come from, and whether they fit.
//
// A key is either 32 bytes of the user's or derived from a passphrase, in the way that the header
// of each encrypted tensor tells; all headers of a file tell the same, unless it was made by hand.
// A wrong key would show only when the first tensor is read, long after the mount: so it is tested
// on a few chunks before.

#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/secret.h"
#include "parser/format/tensorizer/encryption.h"
#include "parser/io/byte_source.h"
#include "parser/layer/decrypted.h"

namespace ckptfs::tensorizer {

// An encrypted tensor: where its data lies, and how it is encrypted. There is data, its chunks have
// no more than Encryption::kMostOfChunk bytes, there is a tag for each, and all that is in the file.
struct EncryptedTensor {
  Extent data;
  TensorEncryption encryption;
};

// What the layer that decrypts wants to know.
Encryption EncryptionOf(const TensorEncryption& encryption);

// The keys of one file. Belongs to one thread.
class Keys {
 public:
  // `ask` may be empty: there is no secret. `budget` must outlive this.
  Keys(AskSecret ask, Budget& budget) : ask_(std::move(ask)), budget_(budget) {}

  // Finds the keys of `tensors`, which are all that are encrypted in the file, and tests them. Asks
  // the user once, or not at all if there are none. To be called once. Throws Error: EKEYREJECTED
  // if the user's secret is not that of the file, EFBIG if deriving a key takes more time or memory
  // than we give it, ENOMEM if there is not as much memory, what the user's secret and reading the
  // file throw.
  void Open(std::span<const EncryptedTensor> tensors);

  // Whether the user has a secret.
  bool has_secret() const { return !origin_.empty(); }

  // Returns the key of a tensor that was opened; null if there is none, and then NoKeyReason.
  std::shared_ptr<const SecretBytes> KeyFor(const TensorEncryption& encryption) const;

  // Why there is no key, for a message about a tensor: "it is encrypted, and there is no key".
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
  std::shared_ptr<const SecretBytes> key_;  // Of all tensors; null if that is not what there is.
  std::vector<Derived> derived_;
};

}  // namespace ckptfs::tensorizer
