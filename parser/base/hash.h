// Hashes of untrusted keys, with a secret seed against hash flooding, and an index by hashes.

#pragma once

#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace ckptfs {

// Returns the hash of `bytes`. Differs between runs of the program: the seed is the address of a
// variable (ASLR), which the author of a checkpoint does not know, and therefore cannot choose
// colliding keys.
inline uint64_t HashOf(std::span<const std::byte> bytes) {
  static constexpr char kSomewhere = 0;
  return ::XXH3_64bits_withSeed(bytes.data(), bytes.size(),
                                reinterpret_cast<uintptr_t>(&kSomewhere));
}

inline uint64_t HashOf(std::string_view text) { return HashOf(std::as_bytes(std::span(text))); }

// For tables of the standard library, whose default hash of texts is the same in every program:
// colliding keys would make them as slow as lists.
struct SecretHash {
  size_t operator()(std::string_view text) const { return HashOf(text); }
};

// Finds numbers by the objects that they index. The caller stores the objects and compares them:
// the index stores at most kMostBytes for each number, where a std::unordered_map takes 60 and
// more.
class HashIndex {
 public:
  static constexpr uint32_t kNone = 0xFFFFFFFF;
  static constexpr size_t kMostBytes = 32;  // Four slots; for a table of more than kMinSlots.

  // Empties the index and reserves space for `count` numbers. It grows beyond that.
  void Reset(size_t count) {
    size_t size = kMinSlots;
    while (size < 2 * count) size *= 2;
    slots_.assign(size, {});
    count_ = 0;
  }

  // Returns a number that was inserted with this hash and for which `is_equal(number)` holds, or
  // kNone.
  template <typename IsEqual>
  uint32_t Find(uint64_t hash, const IsEqual& is_equal) const {
    const auto mark = static_cast<uint32_t>(hash);
    for (size_t i = mark & (slots_.size() - 1); slots_[i].number != kNone; i = After(i)) {
      if (slots_[i].mark == mark && is_equal(slots_[i].number)) return slots_[i].number;
    }
    return kNone;
  }

  // Precondition: `number` is not kNone.
  void Insert(uint64_t hash, uint32_t number) {
    if (2 * ++count_ > slots_.size()) Grow();
    Place({.mark = static_cast<uint32_t>(hash), .number = number});
  }

 private:
  static constexpr size_t kMinSlots = 16;  // A power of two, as all sizes.

  struct Slot {
    uint32_t mark = 0;  // The low bits of the hash, the lowest of which are the first slot.
    uint32_t number = kNone;
  };

  size_t After(size_t i) const { return (i + 1) & (slots_.size() - 1); }

  void Place(Slot slot) {
    size_t i = slot.mark & (slots_.size() - 1);
    while (slots_[i].number != kNone) i = After(i);
    slots_[i] = slot;
  }

  void Grow() {
    const auto old = std::exchange(slots_, std::vector<Slot>(2 * slots_.size()));
    for (const Slot& slot : old) {
      if (slot.number != kNone) Place(slot);
    }
  }

  std::vector<Slot> slots_ = std::vector<Slot>(kMinSlots);
  size_t count_ = 0;
};

}  // namespace ckptfs
