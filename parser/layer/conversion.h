// How stored elements become those of a tensor: byte order, conjugate, negative.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "parser/base/dtype.h"

namespace ckptfs {

// Which elements are stored, compared with those that the tensor has.
struct Storing {
  bool is_big_endian = false;
  bool is_conjugated = false;  // The tensor has the conjugates; real numbers are their own.
  bool is_negated = false;     // The tensor has the negatives.
};

bool IsComplex(Dtype dtype);

// Makes elements from stored ones, in place.
class Conversion {
 public:
  // Throws Error(ENOTSUP) if negatives are asked for of a type that has none.
  Conversion(Dtype dtype, const Storing& storing);

  // Converts elements. The size of `bytes` is a multiple of that of an element.
  void Apply(std::span<std::byte> bytes) const;

 private:
  enum class Negation : uint8_t {
    kNone,
    kSignBit,        // Of all that `sign_step_` says.
    kTwoComplement,  // Of unsigned integers too, as PyTorch has it.
    kSignUnlessNan,  // Zero has no sign: its negative would be the only NaN.
  };

  static Negation NegationOf(Dtype dtype);

  uint8_t item_size_;
  uint8_t swap_size_ = 1;   // Bytes that are reversed.
  uint8_t sign_first_ = 0;  // The first byte that has a sign to be flipped, ...
  uint8_t sign_step_ = 1;   // ... and how far it is to the next.
  Negation negation_ = Negation::kNone;
};

}  // namespace ckptfs
