#include "parser/format/tensorizer/encryption.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "parser/base/byte_reader.h"
#include "parser/base/error.h"
#include "parser/layer/decrypted.h"

namespace ckptfs::tensorizer {
namespace {

constexpr std::string_view kWhat = "the section on its encryption";

// Reads a section sequentially, a few bytes at a time.
class Section {
 public:
  explicit Section(const Extent& extent) : place_(extent) {}

  // Returns the next `Size` bytes.
  template <size_t Size>
  std::array<std::byte, Size> Take(std::string_view field) {
    std::array<std::byte, Size> bytes = {};
    const Extent taken = TakeExtent(Size, field);
    taken.source->ReadAt(taken.offset, bytes);
    return bytes;
  }

  // Returns where the next `length` bytes are.
  Extent TakeExtent(uint64_t length, std::string_view field) {
    if (length > place_.length) {
      Fail(EBADMSG, "{} at byte {}: {} needs {} bytes, but only {} are left", kWhat, place_.offset,
           field, length, place_.length);
    }
    Extent taken = {place_.source, place_.offset, length};
    place_.offset += length;
    place_.length -= length;
    return taken;
  }

  template <typename T>
  T Read(std::string_view field) {
    return ByteReader(kWhat, Take<sizeof(T)>(field)).template Read<T>(field);
  }

  void ExpectEnd(std::string_view what) const {
    if (place_.length == 0) return;
    Fail(EBADMSG, "{} has {} extra bytes at its end", what, place_.length);
  }

 private:
  Extent place_;  // Of what is left.
};

KeyDerivation ReadDerivation(Section& record) {
  constexpr unsigned kPasswordHash = 1;
  constexpr int kArgon2id = 2;
  const auto method = record.Read<uint16_t>("method");
  if (method != kPasswordHash) Fail(EBADMSG, "its key is derived by the unknown method {}", method);
  KeyDerivation derivation;
  derivation.passes = record.Read<uint64_t>("number of passes");
  derivation.memory = record.Read<uint64_t>("bytes of memory");
  if (const auto algorithm = record.Read<int32_t>("algorithm"); algorithm != kArgon2id) {
    Fail(EBADMSG, "its key is derived by the unknown algorithm {}", algorithm);
  }
  const auto salt_size = record.Read<uint16_t>("length of the salt");
  if (salt_size != derivation.salt.size()) {
    Fail(EBADMSG, "the salt of its key has {} bytes, but needs {}", salt_size,
         derivation.salt.size());
  }
  derivation.salt = record.Take<sizeof derivation.salt>("salt");
  return derivation;
}

// A message is decrypted as a whole.
void CheckMessage(uint64_t data_size) {
  if (data_size > Encryption::kMostOfChunk) {
    Fail(EBADMSG, "its {} bytes are encrypted in one piece (maximum {})", data_size,
         Encryption::kMostOfChunk);
  }
}

void CheckChunks(uint64_t chunk_size, uint64_t count, uint64_t data_size) {
  constexpr uint64_t kLeastChunk = 1024;  // Bytes, as for tensorizer; so is this:
  constexpr uint64_t kBlock = 64;
  if (chunk_size < kLeastChunk || chunk_size % kBlock != 0 ||
      chunk_size > Encryption::kMostOfChunk) {
    Fail(EBADMSG, "is encrypted in chunks of {} bytes, but {} to {} in steps of {} are possible",
         chunk_size, kLeastChunk, Encryption::kMostOfChunk, kBlock);
  }
  const uint64_t want = data_size / chunk_size + (data_size % chunk_size != 0 ? 1 : 0);
  if (count != want) {
    Fail(EBADMSG, "has {} tags, but its {} bytes in chunks of {} need {}", count, data_size,
         chunk_size, want);
  }
}

void ReadChunks(Section& record, uint64_t data_size, Encryption& encryption) {
  encryption.chunk_size = record.Read<uint64_t>("length of a chunk");
  encryption.nonce = record.Take<sizeof encryption.nonce>("nonce");
  const auto count = record.Read<uint64_t>("number of tags");
  if (count == 1) {  // One message, whatever the length of a chunk.
    CheckMessage(data_size);
    encryption.chunk_size = data_size;
  } else {
    CheckChunks(encryption.chunk_size, count, data_size);
  }
  // With no more tags than bytes of data, which are in a file, this does not overflow.
  encryption.macs = record.TakeExtent(count * Encryption::kMacSize, "table of tags");
}

void ReadMessage(Section& record, uint64_t data_size, Encryption& encryption) {
  CheckMessage(data_size);
  encryption.chunk_size = data_size;
  encryption.nonce = record.Take<sizeof encryption.nonce>("nonce");
  encryption.macs = record.TakeExtent(Encryption::kMacSize, "tag");
}

}  // namespace

std::optional<TensorEncryption> ReadEncryption(const Extent& extent, uint64_t data_size) {
  constexpr unsigned kDerivation = 1;
  constexpr unsigned kChunks = 2;
  constexpr unsigned kMessage = 3;
  Section section(extent);
  TensorEncryption encryption;
  bool has_data = false;
  const auto count = section.Read<uint16_t>("number of records");
  for (unsigned i = 0; i < count; ++i) {
    const auto length = section.Read<uint64_t>("length of a record");
    Section record(section.TakeExtent(length, "record"));
    const auto type = record.Read<uint16_t>("type of a record");
    if (type == kDerivation) {
      if (encryption.derivation) Fail(EBADMSG, "its key is derived in more ways than one");
      encryption.derivation = ReadDerivation(record);
    } else if (type == kChunks || type == kMessage) {
      if (has_data) Fail(EBADMSG, "is encrypted in more ways than one");
      has_data = true;
      const auto read = type == kChunks ? ReadChunks : ReadMessage;
      read(record, data_size, encryption.chunks);
    } else {
      Fail(EBADMSG, "is encrypted in the unknown way {}", type);
    }
    record.ExpectEnd("a record on its encryption");
  }
  section.ExpectEnd(kWhat);
  if (!has_data && count > 0) Fail(EBADMSG, "has a key, but no record on its use");
  if (!has_data) return std::nullopt;
  return encryption;
}

namespace {

// The most expensive preset of libsodium, "sensitive", makes 4 passes over 1 GiB, which takes some
// seconds. A file could ask for four billion passes over 4 TiB for each of its tensors.
constexpr uint64_t kMostMemory = uint64_t{1} << 30;
constexpr uint64_t kMostWork = uint64_t{4} << 30;  // Passes times memory.
constexpr size_t kMostDerivations = 4;

// Chunks to try before a key is rejected: some of them may be corrupt.
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

// Tensors with the same key.
using Tensors = std::vector<const EncryptedTensor*>;

// The result of testing a key.
struct Trial {
  size_t tried = 0;            // Chunks.
  bool opened = false;         // The last one was decrypted.
  std::optional<Error> error;  // Of a chunk that could not be read.
};

void Try(const EncryptedTensor& tensor, const SecretBytes& key, uint64_t index, Trial& trial) try {
  trial.opened = CanDecrypt(tensor.data, tensor.encryption.chunks, key, index);
  ++trial.tried;
} catch (const Error& e) {
  if (IsTransient(e.code())) throw;
  trial.error = e;
}

// Tests `key` on the first chunks of the smallest `tensors`, then on their next chunks, until a
// chunk is decrypted or kMostTried chunks have failed.
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
      return (t->data.length - 1) / t->encryption.chunks.chunk_size <= index;
    });
  }
}

}  // namespace

void KeyRing::Open(std::span<const EncryptedTensor> tensors) {
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

void KeyRing::Derive(const Secret& passphrase, std::span<const EncryptedTensor> tensors) {
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
  // A wrong passphrase is rejected after the first derivation.
  for (Derived& derived : derived_) {
    budget_.Lend(derived.derivation.memory);
    derived.key = KeyOf(passphrase, derived.derivation);
    if (&derived == &derived_.front()) Test(tensors);
  }
}

void KeyRing::Test(std::span<const EncryptedTensor> tensors) const {
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
  Fail(EKEYREJECTED, "wrong {} from {}, or corrupt chunks: cannot decrypt any of {} tested",
       key_ != nullptr ? "key" : "passphrase", origin_, trial.tried);
}

std::shared_ptr<const SecretBytes> KeyRing::KeyFor(const TensorEncryption& encryption) const {
  if (key_ != nullptr || !encryption.derivation) return key_;
  const auto found = std::ranges::find(derived_, *encryption.derivation, &Derived::derivation);
  return found == derived_.end() ? nullptr : found->key;
}

std::string KeyRing::NoKeyReason(const TensorEncryption& encryption) const {
  if (has_secret()) return "encrypted with a key, but a passphrase was given";
  return fmt::format("encrypted, but no key given: use -o key_file{}",
                     encryption.derivation ? " or -o passphrase_file" : "");
}

}  // namespace ckptfs::tensorizer
