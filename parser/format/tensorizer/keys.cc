#include "parser/format/tensorizer/keys.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "parser/base/error.h"

namespace ckptfs::tensorizer {
namespace {

// What the dearest of libsodium's presets takes, "sensitive": 1 GiB four times over, which is some
// seconds. A file may ask for 4 TiB four billion times over, for each of its tensors.
constexpr uint64_t kMostMemory = uint64_t{1} << 30;
constexpr uint64_t kMostWork = uint64_t{4} << 30;  // Passes times memory.
constexpr size_t kMostDerivations = 4;

// Chunks to be tried before a key is called wrong: some of them may be damaged.
constexpr size_t kMostTried = 8;

void Check(const KeyDerivation& derivation) {
  if (derivation.passes < crypto_pwhash_OPSLIMIT_MIN) {
    Fail(EBADMSG, "the derivation of its key has {} passes (opslimit), but at least {} is needed",
         derivation.passes, crypto_pwhash_OPSLIMIT_MIN);
  }
  if (derivation.memory < crypto_pwhash_MEMLIMIT_MIN) {
    Fail(EBADMSG,
         "the derivation of its key has {} bytes of memory (memlimit), but at least {} are needed",
         derivation.memory, crypto_pwhash_MEMLIMIT_MIN);
  }
  if (derivation.memory > kMostMemory) {
    Fail(EFBIG,
         "the derivation of its key takes {} bytes of memory (memlimit), but at most {} are given",
         derivation.memory, kMostMemory);
  }
  if (const uint64_t most = kMostWork / derivation.memory; derivation.passes > most) {
    Fail(EFBIG,
         "the derivation of its key takes {} passes (opslimit) over {} bytes, but at most {} are "
         "made",
         derivation.passes, derivation.memory, most);
  }
}

std::shared_ptr<const SecretBytes> KeyOf(const Secret& passphrase,
                                         const KeyDerivation& derivation) {
  static_assert(std::tuple_size_v<decltype(derivation.salt)> == crypto_pwhash_SALTBYTES);
  const auto key = std::make_shared<SecretBytes>(Encryption::kKeySize);
  const auto text = passphrase.bytes.bytes();
  if (::crypto_pwhash(reinterpret_cast<unsigned char*>(key->bytes().data()), key->bytes().size(),
                      reinterpret_cast<const char*>(text.data()), text.size(),
                      reinterpret_cast<const unsigned char*>(derivation.salt.data()),
                      derivation.passes, derivation.memory, crypto_pwhash_ALG_ARGON2ID13) != 0) {
    Fail(ENOMEM, "cannot get the {} bytes of memory that the derivation of its key takes",
         derivation.memory);
  }
  return key;
}

// Tensors that have one key.
using Tensors = std::vector<const EncryptedTensor*>;

// What came of trying a key.
struct Trial {
  size_t tried = 0;            // Chunks.
  bool opened = false;         // The last of them.
  std::optional<Error> error;  // Of a chunk that could not be read.
};

void Try(const EncryptedTensor& tensor, const SecretBytes& key, uint64_t index, Trial& trial) try {
  trial.opened = CanDecrypt(tensor.data, EncryptionOf(tensor.encryption), key, index);
  ++trial.tried;
} catch (const Error& e) {
  if (IsTransient(e.code())) throw;
  trial.error = e;
}

// Tries `key` on the first chunks of the smallest of `tensors`, and if they are few, on the next
// chunks of them, until one opens or there were enough.
void Try(Tensors tensors, const SecretBytes& key, Trial& trial) {
  const size_t count = std::min(kMostTried, tensors.size());
  const auto smallest = tensors.begin() + static_cast<ptrdiff_t>(count);
  std::ranges::partial_sort(tensors, smallest, {},
                            [](const EncryptedTensor* t) { return t->data.length; });
  tensors.erase(smallest, tensors.end());
  size_t left = kMostTried;
  for (uint64_t index = 0; !tensors.empty(); ++index) {
    for (const EncryptedTensor* tensor : tensors) {
      if (left-- == 0) return;
      Try(*tensor, key, index, trial);
      if (trial.opened) return;
    }
    std::erase_if(tensors, [&](const EncryptedTensor* t) {
      return (t->data.length - 1) / t->encryption.chunk_size <= index;
    });
  }
}

}  // namespace

Encryption EncryptionOf(const TensorEncryption& encryption) {
  return {.chunk_size = encryption.chunk_size, .nonce = encryption.nonce, .macs = encryption.macs};
}

void Keys::Open(std::span<const EncryptedTensor> tensors) {
  if (tensors.empty() || !ask_) return;
  const bool takes_passphrase = std::ranges::any_of(
      tensors, [](const EncryptedTensor& t) { return t.encryption.derivation.has_value(); });
  const std::shared_ptr<const Secret> secret = ask_(takes_passphrase);
  if (secret == nullptr) return;
  origin_ = secret->origin;
  if (secret->kind == Secret::Kind::kKey) {
    key_ = {secret, &secret->bytes};
  } else if (takes_passphrase) {
    return Derive(*secret, tensors);
  } else {
    Fail(EKEYREJECTED,
         "it was encrypted with a key and not with a passphrase, so the one from {} does not open "
         "it: give the 32 bytes of the key with -o key_file",
         origin_);
  }
  Test(tensors);
}

void Keys::Derive(const Secret& passphrase, std::span<const EncryptedTensor> tensors) {
  uint64_t work = 0;
  for (const EncryptedTensor& tensor : tensors) {
    const auto& derivation = tensor.encryption.derivation;
    if (!derivation || std::ranges::count(derived_, *derivation, &Derived::derivation) > 0)
      continue;
    if (derived_.size() == kMostDerivations) {
      Fail(EFBIG, "the keys of its tensors are derived in more than {} ways", kMostDerivations);
    }
    Check(*derivation);
    work += derivation->passes * derivation->memory;
    if (work > kMostWork) {
      Fail(EFBIG, "the derivations of its keys take more than {} passes over bytes of memory",
           kMostWork);
    }
    derived_.push_back({.derivation = *derivation, .key = nullptr});
  }
  // The first one shows whether the passphrase is right: a wrong one costs no others.
  for (Derived& derived : derived_) {
    budget_.Lend(derived.derivation.memory);
    derived.key = KeyOf(passphrase, derived.derivation);
    if (&derived == &derived_.front()) Test(tensors);
  }
}

void Keys::Test(std::span<const EncryptedTensor> tensors) const {
  std::map<const SecretBytes*, Tensors> tensors_of;
  for (const EncryptedTensor& tensor : tensors) {
    const auto key = KeyFor(tensor.encryption);
    if (key != nullptr) tensors_of[key.get()].push_back(&tensor);
  }
  Trial trial;
  for (auto& [key, its_tensors] : tensors_of) {
    Try(std::move(its_tensors), *key, trial);
    if (trial.opened) return;
  }
  if (trial.tried == 0 && trial.error) throw Error(*trial.error);
  Fail(
      EKEYREJECTED,
      "the {} from {} opens none of the {} chunks that were tried: it is not that of this file, or "
      "they are damaged",
      key_ != nullptr ? "key" : "passphrase", origin_, trial.tried);
}

std::shared_ptr<const SecretBytes> Keys::KeyFor(const TensorEncryption& encryption) const {
  if (key_ != nullptr || !encryption.derivation) return key_;
  const auto found = std::ranges::find(derived_, *encryption.derivation, &Derived::derivation);
  return found == derived_.end() ? nullptr : found->key;
}

std::string Keys::NoKeyReason(const TensorEncryption& encryption) const {
  if (has_secret()) return "it is encrypted with a key and not with a passphrase, as others are";
  return fmt::format("it is encrypted, and there is no key: give one with -o key_file{}",
                     encryption.derivation ? " or -o passphrase_file" : "");
}

}  // namespace ckptfs::tensorizer
