// The elements of a tensor as numbers.

#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "parser/base/dtype.h"

namespace ckptfs::ckpt {

// How an element type is decoded: `kSize` bytes, which are little-endian, to a `Value`.
template <typename T>
struct Native {
  using Value = T;
  static constexpr size_t kSize = sizeof(T);
  static Value Load(const std::byte* bytes) {
    T value;
    std::memcpy(&value, bytes, sizeof(T));
    return value;
  }
};

// The precision of a float type that is narrower than its Value.
struct Narrow {
  int mantissa_bits = 0;  // Without the one that is not stored.
  int min_exponent = 0;   // Of normal numbers, as a power of two.
};

struct Bool {
  using Value = bool;
  static constexpr size_t kSize = 1;
  static Value Load(const std::byte* bytes) { return *bytes != std::byte{0}; }
};

struct Bfloat16 {
  using Value = float;
  static constexpr size_t kSize = 2;
  static constexpr Narrow kNarrow = {.mantissa_bits = 7, .min_exponent = -126};
  static Value Load(const std::byte* bytes) {
    return std::bit_cast<float>(uint32_t{Native<uint16_t>::Load(bytes)} << 16U);
  }
};

struct Float16 {
  using Value = float;
  static constexpr size_t kSize = 2;
  static constexpr Narrow kNarrow = {.mantissa_bits = 10, .min_exponent = -14};
  // Without branches: the exponent is scaled by a product, which also normalizes denormals.
  static Value Load(const std::byte* bytes) {
    const uint32_t half = Native<uint16_t>::Load(bytes);
    const uint32_t magnitude = (half & 0x7fffU) << 13U;
    const auto scaled = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112F);
    const uint32_t special = magnitude >= 0x0f800000U ? 0x7f800000U : 0U;  // Infinity or NaN.
    return std::bit_cast<float>(scaled | special | ((half & 0x8000U) << 16U));
  }
};

// The values of a byte's codes. Of the float types of 8 and 4 bits, the types differ in the codes
// that are no numbers: see the paper "FP8 Formats for Deep Learning", and ml_dtypes.
enum class Specials : uint8_t {
  kIeee,  // The largest exponent is infinity and NaN.
  kFn,    // Finite: all ones are NaN.
  kFnuz,  // Finite, and no negative zero: its code is NaN.
  kNone,  // All codes are numbers.
};

template <unsigned kExponentBits, unsigned kMantissaBits, int kBias, Specials kSpecials>
constexpr float SmallFloat(unsigned code) {
  const bool is_negative = (code >> (kExponentBits + kMantissaBits) & 1U) != 0;
  const unsigned exponent = code >> kMantissaBits & ((1U << kExponentBits) - 1);
  const unsigned mantissa = code & ((1U << kMantissaBits) - 1);
  const unsigned most = (1U << kExponentBits) - 1;
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  if (kSpecials == Specials::kIeee && exponent == most) {
    if (mantissa != 0) return kNan;
    return is_negative ? -std::numeric_limits<float>::infinity()
                       : std::numeric_limits<float>::infinity();
  }
  if (kSpecials == Specials::kFn && exponent == most && mantissa == (1U << kMantissaBits) - 1) {
    return kNan;
  }
  if (kSpecials == Specials::kFnuz && is_negative && exponent == 0 && mantissa == 0) return kNan;
  float value = static_cast<float>(exponent == 0 ? mantissa : mantissa + (1U << kMantissaBits));
  int power =
      static_cast<int>(exponent == 0 ? 1 : exponent) - kBias - static_cast<int>(kMantissaBits);
  for (; power > 0; --power) value *= 2;
  for (; power < 0; ++power) value /= 2;
  return is_negative ? -value : value;
}

// Powers of two: 2^(code - 127); 255 is NaN.
constexpr float PowerOfTwo(unsigned code) {
  if (code == 255) return std::numeric_limits<float>::quiet_NaN();
  // The smallest power is a denormal.
  return std::bit_cast<float>(code == 0 ? 0x00400000U : code << 23U);
}

template <auto kDecode, int kMantissaBits, int kMinExponent>
struct Coded {
  using Value = float;
  static constexpr size_t kSize = 1;
  static constexpr Narrow kNarrow = {.mantissa_bits = kMantissaBits, .min_exponent = kMinExponent};
  static constexpr std::array<float, 256> kValues = [] {
    std::array<float, 256> values{};
    for (unsigned code = 0; code < values.size(); ++code) values[code] = kDecode(code);
    return values;
  }();
  static Value Load(const std::byte* bytes) { return kValues[std::to_integer<uint8_t>(*bytes)]; }
};

using Float8E4m3fn = Coded<SmallFloat<4, 3, 7, Specials::kFn>, 3, -6>;
using Float8E5m2 = Coded<SmallFloat<5, 2, 15, Specials::kIeee>, 2, -14>;
using Float8E4m3fnuz = Coded<SmallFloat<4, 3, 8, Specials::kFnuz>, 3, -7>;
using Float8E5m2fnuz = Coded<SmallFloat<5, 2, 16, Specials::kFnuz>, 2, -15>;
using Float8E8m0fnu = Coded<PowerOfTwo, 0, -127>;

template <typename Part>
struct Complex {
  using Real = Part;
  using Value = std::complex<typename Part::Value>;
  static constexpr size_t kSize = 2 * Part::kSize;
  static Value Load(const std::byte* bytes) {
    return {Part::Load(bytes), Part::Load(bytes + Part::kSize)};
  }
};

// Calls `function(Type())` with the decoder of `dtype`, and returns true. Returns false for types
// whose bytes are not one number each: packed, opaque and bits. Quantized types are the integers.
template <typename Function>
bool VisitElementType(Dtype dtype, const Function& function) {
  switch (dtype) {
    case Dtype::kBool:
      return function(Bool()), true;
    case Dtype::kUint8:
    case Dtype::kQuint8:
      return function(Native<uint8_t>()), true;
    case Dtype::kInt8:
    case Dtype::kQint8:
      return function(Native<int8_t>()), true;
    case Dtype::kUint16:
      return function(Native<uint16_t>()), true;
    case Dtype::kInt16:
      return function(Native<int16_t>()), true;
    case Dtype::kUint32:
      return function(Native<uint32_t>()), true;
    case Dtype::kInt32:
    case Dtype::kQint32:
      return function(Native<int32_t>()), true;
    case Dtype::kUint64:
      return function(Native<uint64_t>()), true;
    case Dtype::kInt64:
      return function(Native<int64_t>()), true;
    case Dtype::kFloat16:
      return function(Float16()), true;
    case Dtype::kBfloat16:
      return function(Bfloat16()), true;
    case Dtype::kFloat32:
      return function(Native<float>()), true;
    case Dtype::kFloat64:
      return function(Native<double>()), true;
    case Dtype::kComplex32:
      return function(Complex<Float16>()), true;
    case Dtype::kComplex64:
      return function(Complex<Native<float>>()), true;
    case Dtype::kComplex128:
      return function(Complex<Native<double>>()), true;
    case Dtype::kFloat8E4m3fn:
      return function(Float8E4m3fn()), true;
    case Dtype::kFloat8E5m2:
      return function(Float8E5m2()), true;
    case Dtype::kFloat8E4m3fnuz:
      return function(Float8E4m3fnuz()), true;
    case Dtype::kFloat8E5m2fnuz:
      return function(Float8E5m2fnuz()), true;
    case Dtype::kFloat8E8m0fnu:
      return function(Float8E8m0fnu()), true;
    case Dtype::kOpaque:
    case Dtype::kFloat4E2m1fnX2:
    case Dtype::kQuint4x2:
    case Dtype::kQuint2x4:
    case Dtype::kBits8:
    case Dtype::kBits16:
    case Dtype::kBits1x8:
    case Dtype::kBits2x4:
    case Dtype::kBits4x2:
      return false;
  }
  return false;
}

}  // namespace ckptfs::ckpt
