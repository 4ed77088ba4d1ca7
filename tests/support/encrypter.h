// Encrypts like the writers of encrypted checkpoints.

#pragma once

#include <sodium.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "parser/base/secret.h"
#include "parser/io/simple_sources.h"
#include "parser/layer/decrypted.h"

namespace ckptfs {

// Decodes hexadecimal `digits`, and ignores spaces.
inline std::string FromHex(std::string_view digits) {
  std::string bytes(digits.size(), '\0');
  size_t size = 0;
  sodium_hex2bin(reinterpret_cast<unsigned char*>(bytes.data()), bytes.size(), digits.data(),
                 digits.size(), " ", &size, nullptr);
  return bytes.substr(0, size);
}

inline std::string ToHex(std::span<const std::byte> bytes) {
  std::string digits(2 * bytes.size() + 1, '\0');
  sodium_bin2hex(digits.data(), digits.size(), reinterpret_cast<const unsigned char*>(bytes.data()),
                 bytes.size());
  digits.pop_back();
  return digits;
}

inline std::shared_ptr<const SecretBytes> SecretOf(std::string_view text) {
  return std::make_shared<SecretBytes>(std::as_bytes(std::span(text)));
}

// Bytes that were encrypted chunk by chunk, and the tags of the chunks.
struct Encrypted {
  uint64_t chunk_size = 0;
  std::array<std::byte, Encryption::kNonceSize> nonce = {};  // Of the first chunk.
  std::string data;
  std::string macs;

  Extent extent() const { return Whole(data); }
  Encryption encryption() const {
    return {.chunk_size = chunk_size, .nonce = nonce, .macs = Whole(macs)};
  }

 private:
  static Extent Whole(const std::string& bytes) {
    return {std::make_shared<MemorySource>(bytes), 0, bytes.size()};
  }
};

// Encrypts `plain`, the first chunk with the nonce `first`, the others with those that follow it.
inline Encrypted Encrypt(std::string_view plain, uint64_t chunk_size, const SecretBytes& key,
                         std::array<std::byte, Encryption::kNonceSize> first = {}) {
  Encrypted encrypted{.chunk_size = chunk_size, .nonce = first};
  auto* const nonce = reinterpret_cast<unsigned char*>(first.data());
  while (!plain.empty()) {
    std::string data(plain.substr(0, chunk_size));
    std::string mac(Encryption::kMacSize, '\0');
    auto* const raw = reinterpret_cast<unsigned char*>(data.data());
    crypto_secretbox_detached(raw, reinterpret_cast<unsigned char*>(mac.data()), raw, data.size(),
                              nonce, reinterpret_cast<const unsigned char*>(key.bytes().data()));
    encrypted.data += data;
    encrypted.macs += mac;
    sodium_increment(nonce, first.size());
    plain.remove_prefix(data.size());
  }
  return encrypted;
}

}  // namespace ckptfs
