// One element of an array, or a scalar of NumPy, in JSON.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "parser/base/dtype.h"
#include "parser/codec/npy/type.h"

namespace ckptfs::npy {

// The unit of a datetime64 or a timedelta64.
struct TimeUnit {
  std::string_view name;  // "D", "ns"; "generic" if it is unspecified; a literal.
  int64_t count = 1;      // 25 of "25s".
};

// Returns the unit with that name: {"D", count}. The name is empty if NumPy has no such unit.
TimeUnit TimeUnitNamed(std::string_view name, int64_t count);

// A timedelta64: "75 seconds", "5 generic time units", "NaT".
std::string DurationText(int64_t number, const TimeUnit& unit);

// An element type of the package ml_dtypes, which JAX, flax and others save. Each element has whole
// bytes; types of 1 to 6 bits are in the low bits.
struct MlDtype {
  // The meaning of the bit patterns that are not finite numbers.
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

// Appends the element in `bytes`, in the byte order and the length of `type`: numbers
// as numbers, complex ones as [real, imaginary], times in ISO 8601, durations with their unit,
// texts as texts, bytes and other types in hex. Appends at most 4 bytes for each of `bytes`, and 64
// more. `type` contains no objects.
void AppendElement(std::string& out, const Type& type, std::string_view bytes);

}  // namespace ckptfs::npy
