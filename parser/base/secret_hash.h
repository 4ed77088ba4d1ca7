// Hashes with a secret seed, against hash flooding.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace ckptfs {

// Mixes `value` into a hash. The seed is the address of a variable (ASLR): the author of a
// checkpoint does not know it, and so cannot choose keys that collide.
inline uint64_t Mix(uint64_t hash, uint64_t value) {
  __extension__ using Wide = unsigned __int128;
  static constexpr char kSomewhere = 0;
  const uint64_t secret = reinterpret_cast<uintptr_t>(&kSomewhere) * 0x9E3779B97F4A7C15U;
  const Wide product = Wide{hash ^ value ^ secret} * ((secret >> 7U) | 1U);
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64U);
}

// Hashes a text. Differs from one run of the program to the next.
inline uint64_t HashOf(std::string_view text) {
  uint64_t hash = Mix(0, text.size());
  for (; text.size() > sizeof(uint64_t); text.remove_prefix(sizeof(uint64_t))) {
    uint64_t word = 0;
    std::memcpy(&word, text.data(), sizeof word);
    hash = Mix(hash, word);
  }
  uint64_t rest = 0;
  if (!text.empty()) std::memcpy(&rest, text.data(), text.size());
  return Mix(hash, rest);
}

// For the tables of the standard library, whose own hash of texts is the same in every program:
// keys that are chosen to collide make those as slow as lists.
struct SecretHash {
  size_t operator()(std::string_view text) const { return HashOf(text); }
};

}  // namespace ckptfs
