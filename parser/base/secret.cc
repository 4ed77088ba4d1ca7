#include "parser/base/secret.h"

#include <sodium.h>

#include <algorithm>
#include <new>
#include <stdexcept>

namespace ckptfs {
namespace {

// Idempotent and thread-safe. Holders of SecretBytes may use all of libsodium.
void StartLibsodium() {
  if (::sodium_init() < 0) throw std::runtime_error("libsodium does not start");
}

}  // namespace

SecretBytes::SecretBytes(size_t size) : size_(size) {
  StartLibsodium();
  bytes_.reset(static_cast<std::byte*>(::sodium_malloc(size)));
  if (bytes_ == nullptr) throw std::bad_alloc();
  std::ranges::fill(this->bytes(), std::byte{0});
}

SecretBytes::SecretBytes(std::span<const std::byte> bytes) : SecretBytes(bytes.size()) {
  std::ranges::copy(bytes, bytes_.get());
}

void SecretBytes::Free::operator()(std::byte* bytes) const noexcept { ::sodium_free(bytes); }

}  // namespace ckptfs
