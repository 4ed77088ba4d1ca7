// The element types of the package ml_dtypes, which JAX, flax and others save.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "parser/base/dtype.h"

namespace ckptfs::npy {

// Each element has whole bytes of its own, also the types of 1 to 6 bits: they are in the low bits.
struct MlDtype {
  // What the bits that no finite number has mean.
  enum class Special : uint8_t {
    kInfinities,    // IEEE 754: the largest exponent is infinities and NaN.
    kAllOnes,       // NaN if all bits but the sign are set ("fn").
    kNegativeZero,  // NaN is what would be the negative zero ("fnuz").
    kNothing,       // All bits are finite numbers.
    kScale,         // No sign, no fraction: a power of two; all ones are NaN.
    kInteger,       // Two's complement.
    kNatural,       // No sign.
    kPair,          // Complex: two float16 (complex32) or bfloat16 (bcomplex32).
  };

  std::string_view name;  // "bfloat16"
  Dtype dtype;            // kOpaque where PyTorch has no such type.
  uint8_t item_size;      // In bytes.
  uint8_t swap_size;      // As of npy::Type. Complex numbers are reversed as a whole.
  Special special;
  uint8_t exponent_bits;  // Of integers: all bits.
  uint8_t fraction_bits;
  int8_t bias;
};

// Returns null if ml_dtypes has no such type.
const MlDtype* MlDtypeNamed(std::string_view name);

// The value of a float of a few bits: IEEE 754 binary16 is {.special = kInfinities,
// .exponent_bits = 5, .fraction_bits = 10, .bias = 15}.
double SmallFloat(const MlDtype& format, uint32_t bits);

// Appends an element in JSON. `bytes` are little-endian, `type.item_size` of them.
void AppendMlElement(std::string& out, const MlDtype& type, std::string_view bytes);

}  // namespace ckptfs::npy
