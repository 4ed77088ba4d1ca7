#include "parser/codec/npy/ml_dtypes.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

#include "parser/base/json.h"

namespace ckptfs::npy {
namespace {

using Special = MlDtype::Special;

// Sorted by name.
constexpr MlDtype kTypes[] = {
    {"bcomplex32", Dtype::kOpaque, 4, 4, Special::kPair, 8, 7, 127},
    {"bfloat16", Dtype::kBfloat16, 2, 2, Special::kInfinities, 8, 7, 127},
    {"complex32", Dtype::kComplex32, 4, 4, Special::kPair, 5, 10, 15},
    {"float4_e2m1fn", Dtype::kOpaque, 1, 1, Special::kNothing, 2, 1, 1},
    {"float6_e2m3fn", Dtype::kOpaque, 1, 1, Special::kNothing, 2, 3, 1},
    {"float6_e3m2fn", Dtype::kOpaque, 1, 1, Special::kNothing, 3, 2, 3},
    {"float8_e3m4", Dtype::kOpaque, 1, 1, Special::kInfinities, 3, 4, 3},
    {"float8_e4m3", Dtype::kOpaque, 1, 1, Special::kInfinities, 4, 3, 7},
    {"float8_e4m3b11fnuz", Dtype::kOpaque, 1, 1, Special::kNegativeZero, 4, 3, 11},
    {"float8_e4m3fn", Dtype::kFloat8E4m3fn, 1, 1, Special::kAllOnes, 4, 3, 7},
    {"float8_e4m3fnuz", Dtype::kFloat8E4m3fnuz, 1, 1, Special::kNegativeZero, 4, 3, 8},
    {"float8_e5m2", Dtype::kFloat8E5m2, 1, 1, Special::kInfinities, 5, 2, 15},
    {"float8_e5m2fnuz", Dtype::kFloat8E5m2fnuz, 1, 1, Special::kNegativeZero, 5, 2, 16},
    {"float8_e8m0fnu", Dtype::kFloat8E8m0fnu, 1, 1, Special::kScale, 8, 0, 127},
    {"int1", Dtype::kOpaque, 1, 1, Special::kInteger, 1, 0, 0},
    {"int2", Dtype::kOpaque, 1, 1, Special::kInteger, 2, 0, 0},
    {"int4", Dtype::kOpaque, 1, 1, Special::kInteger, 4, 0, 0},
    {"uint1", Dtype::kOpaque, 1, 1, Special::kNatural, 1, 0, 0},
    {"uint2", Dtype::kOpaque, 1, 1, Special::kNatural, 2, 0, 0},
    {"uint4", Dtype::kOpaque, 1, 1, Special::kNatural, 4, 0, 0},
};
static_assert(std::is_sorted(std::begin(kTypes), std::end(kTypes),
                             [](const MlDtype& a, const MlDtype& b) { return a.name < b.name; }));

// The `size` low bytes of a number.
uint32_t BitsOf(std::string_view bytes, size_t size) {
  uint32_t bits = 0;
  std::memcpy(&bits, bytes.data(), std::min(size, sizeof bits));
  return bits;
}

}  // namespace

const MlDtype* MlDtypeNamed(std::string_view name) {
  const auto* type = std::ranges::lower_bound(kTypes, name, {}, &MlDtype::name);
  return type != std::end(kTypes) && type->name == name ? type : nullptr;
}

double SmallFloat(const MlDtype& format, uint32_t bits) {
  const uint32_t most_exponent = (1U << format.exponent_bits) - 1;
  const uint32_t most_fraction = (1U << format.fraction_bits) - 1;
  const uint32_t fraction = bits & most_fraction;
  const uint32_t exponent = (bits >> format.fraction_bits) & most_exponent;
  if (format.special == Special::kScale) {
    return exponent == most_exponent ? NAN : std::ldexp(1, static_cast<int>(exponent) - 127);
  }
  const bool is_negative = ((bits >> (format.exponent_bits + format.fraction_bits)) & 1U) != 0;
  const double sign = is_negative ? -1 : 1;
  const bool is_largest = exponent == most_exponent;
  if (format.special == Special::kInfinities && is_largest) {
    return fraction != 0 ? NAN : sign * INFINITY;
  }
  if (format.special == Special::kAllOnes && is_largest && fraction == most_fraction) return NAN;
  if (format.special == Special::kNegativeZero && is_negative && exponent == 0 && fraction == 0) {
    return NAN;
  }
  const uint32_t hidden = exponent == 0 ? 0 : most_fraction + 1;
  const int scale = std::max(static_cast<int>(exponent), 1) - format.bias -
                    static_cast<int>(format.fraction_bits);
  return sign * std::ldexp(fraction + hidden, scale);
}

void AppendMlElement(std::string& out, const MlDtype& type, std::string_view bytes) {
  const uint32_t bits = BitsOf(bytes, type.item_size);
  const uint32_t low = bits & ((1U << type.exponent_bits) - 1);
  switch (type.special) {
    case Special::kInteger: {
      const bool is_negative = (low >> (type.exponent_bits - 1U)) != 0;
      out += std::to_string(static_cast<int>(low) - (is_negative ? 1 << type.exponent_bits : 0));
      return;
    }
    case Special::kNatural:
      out += std::to_string(low);
      return;
    case Special::kPair: {
      MlDtype half = type;
      half.special = Special::kInfinities;
      out += '[';
      json::AppendDouble(out, SmallFloat(half, bits & 0xFFFFU));
      out += ',';
      json::AppendDouble(out, SmallFloat(half, bits >> 16U));
      out += ']';
      return;
    }
    default:
      json::AppendDouble(out, SmallFloat(type, bits));
  }
}

}  // namespace ckptfs::npy
