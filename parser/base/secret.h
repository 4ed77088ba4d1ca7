// Keys and passphrases.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace ckptfs {

// Bytes that must not leak: their memory is excluded from core dumps, locked as far as
// RLIMIT_MEMLOCK allows, placed between guard pages, and wiped when it is freed. In a forked child
// they are not locked.
class SecretBytes {
 public:
  // Initially zero. Throws std::bad_alloc.
  explicit SecretBytes(size_t size);

  // Copies `bytes`. Throws std::bad_alloc.
  explicit SecretBytes(std::span<const std::byte> bytes);

  std::span<std::byte> bytes() { return {bytes_.get(), size_}; }
  std::span<const std::byte> bytes() const { return {bytes_.get(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* bytes) const noexcept;
  };

  std::unique_ptr<std::byte, Free> bytes_;
  size_t size_;
};

// Decrypts a checkpoint.
struct Secret {
  enum class Kind : uint8_t {
    kKey,         // 32 bytes that are the key.
    kPassphrase,  // A text, not empty, from which the key is derived.
  };

  Kind kind;
  SecretBytes bytes;
  std::string origin;  // The source, for messages: "key_file /etc/model.key".
};

// Returns the user's secret, or null if there is none: encrypted data is then unreadable. Called
// only for encrypted checkpoints, since it may prompt; `takes_passphrase` is whether a passphrase
// can decrypt this one. Throws Error if the source of the secret cannot be read.
using AskSecret = std::function<std::shared_ptr<const Secret>(bool takes_passphrase)>;

}  // namespace ckptfs
