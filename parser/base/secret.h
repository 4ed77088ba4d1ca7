// Keys and passphrases.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace ckptfs {

// Bytes that nobody else may see: in memory that is left out of core dumps, that is not swapped out
// as far as the limit for locked memory lets it, that lies between pages which cannot be touched,
// and that is wiped when it is freed. A process that is forked has them without the lock.
class SecretBytes {
 public:
  // All zero at first. Throws std::bad_alloc.
  explicit SecretBytes(size_t size);

  // A copy of `bytes`. Throws std::bad_alloc.
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

// What opens an encrypted checkpoint.
struct Secret {
  enum class Kind : uint8_t {
    kKey,         // 32 bytes that are the key.
    kPassphrase,  // A text, not empty, that the key is derived from.
  };

  Kind kind;
  SecretBytes bytes;
  std::string origin;  // Where it is from, for messages: "key_file /etc/model.key".
};

// Returns the user's secret, or null if there is none: then what is encrypted cannot be read.
// Called only if there is something to be opened, for it may ask the user; `takes_passphrase` says
// whether a passphrase can open it. Throws Error if the secret cannot be had as the user said.
using AskSecret = std::function<std::shared_ptr<const Secret>(bool takes_passphrase)>;

}  // namespace ckptfs
