// A float is printed by Python with the digits that tell it from all other float64, whatever its
// own type is, so it comes back by the way it went: what is no float64 of that type never was an
// element of it.

#include "parser/format/zanj/element.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

#include "parser/base/error.h"

namespace ckptfs::zanj {
namespace {

using Kind = json::Node::Kind;

// A binary floating-point type: a sign, an exponent and a fraction.
struct FloatType {
  unsigned exponent_bits = 0;
  unsigned fraction_bits = 0;
  int bias = 0;
  uint64_t nan = 0;           // Its bits, as NumPy makes one.
  bool has_infinity = false;  // All ones in the exponent are no numbers: infinities and NaN.
  uint64_t largest = 0;       // The bits of the largest number.
  bool has_minus_zero = true;
};

constexpr FloatType kHalf = {5, 10, 15, 0x7E00, true, 0x7BFF};
constexpr FloatType kBrain = {8, 7, 127, 0x7FC0, true, 0x7F7F};
constexpr FloatType kE4m3fn = {4, 3, 7, 0x7F, false, 0x7E};
constexpr FloatType kE5m2 = {5, 2, 15, 0x7E, true, 0x7B};
constexpr FloatType kE4m3fnuz = {4, 3, 8, 0x80, false, 0x7F, false};
constexpr FloatType kE5m2fnuz = {5, 2, 16, 0x80, false, 0x7F, false};

// Returns the bits of `number`; nothing if the type has no such number.
std::optional<uint64_t> Encode(const FloatType& type, double number) {
  const unsigned width = 1 + type.exponent_bits + type.fraction_bits;
  const uint64_t sign = uint64_t{std::signbit(number)} << (width - 1);
  if (std::isnan(number)) return type.nan;
  if (number == 0) return sign != 0 && !type.has_minus_zero ? std::nullopt : std::optional(sign);
  if (std::isinf(number)) {
    if (!type.has_infinity) return std::nullopt;
    return sign | (((uint64_t{1} << type.exponent_bits) - 1) << type.fraction_bits);
  }
  int exponent = 0;
  std::frexp(number, &exponent);                     // number = 0.1... * 2^exponent
  exponent = std::max(exponent - 1, 1 - type.bias);  // What is smaller has no leading one.
  const int fraction_bits = static_cast<int>(type.fraction_bits);
  const double units = std::ldexp(std::fabs(number), fraction_bits - exponent);
  if (units != std::trunc(units)) return std::nullopt;
  // Where there is a leading one, it adds one to the exponent.
  const uint64_t bits = (static_cast<uint64_t>(exponent + type.bias - 1) << type.fraction_bits) +
                        static_cast<uint64_t>(units);
  return bits <= type.largest ? std::optional(sign | bits) : std::nullopt;
}

// float8_e8m0fnu: a power of two, and nothing else.
std::optional<uint64_t> EncodePower(double number) {
  if (std::isnan(number)) return 0xFF;
  int exponent = 0;
  if (!(number > 0) || std::isinf(number) || std::frexp(number, &exponent) != 0.5) {
    return std::nullopt;
  }
  const int biased = exponent - 1 + 127;
  if (biased < 0 || biased > 254) return std::nullopt;
  return static_cast<uint64_t>(biased);
}

std::optional<uint64_t> EncodeSingle(double number) {
  if (std::isnan(number)) return 0x7FC00000;
  const bool is_too_large =
      std::isfinite(number) && std::fabs(number) > double{std::numeric_limits<float>::max()};
  if (is_too_large) return std::nullopt;
  const auto single = static_cast<float>(number);
  if (double{single} != number) return std::nullopt;
  return std::bit_cast<uint32_t>(single);
}

std::optional<uint64_t> EncodeFloat(Dtype dtype, double number) {
  switch (dtype) {
    case Dtype::kFloat64:
      return std::bit_cast<uint64_t>(number);
    case Dtype::kFloat32:
      return EncodeSingle(number);
    case Dtype::kFloat16:
      return Encode(kHalf, number);
    case Dtype::kBfloat16:
      return Encode(kBrain, number);
    case Dtype::kFloat8E4m3fn:
      return Encode(kE4m3fn, number);
    case Dtype::kFloat8E5m2:
      return Encode(kE5m2, number);
    case Dtype::kFloat8E4m3fnuz:
      return Encode(kE4m3fnuz, number);
    case Dtype::kFloat8E5m2fnuz:
      return Encode(kE5m2fnuz, number);
    case Dtype::kFloat8E8m0fnu:
      return EncodePower(number);
    default:
      return std::nullopt;
  }
}

bool IsSigned(Dtype dtype) {
  return dtype == Dtype::kInt8 || dtype == Dtype::kInt16 || dtype == Dtype::kInt32 ||
         dtype == Dtype::kInt64;
}

bool IsInteger(Dtype dtype) {
  return IsSigned(dtype) || dtype == Dtype::kUint8 || dtype == Dtype::kUint16 ||
         dtype == Dtype::kUint32 || dtype == Dtype::kUint64;
}

// The bits of an integer, of which `bits` count; nothing if they are too few.
std::optional<uint64_t> EncodeInteger(Dtype dtype, unsigned bits, json::Node number) {
  const uint64_t most = ~uint64_t{} >> (64 - bits) >> (IsSigned(dtype) ? 1 : 0);
  if (number.kind() == Kind::kWhole) {
    return number.whole() <= most ? std::optional(number.whole()) : std::nullopt;
  }
  if (number.kind() != Kind::kNegative) return std::nullopt;
  const int64_t value = number.negative();
  if (value < 0 && (!IsSigned(dtype) || value < -static_cast<int64_t>(most) - 1)) {
    return std::nullopt;
  }
  return static_cast<uint64_t>(value);
}

// A number as a double, if it is one exactly.
std::optional<double> DoubleOf(json::Node number) {
  constexpr double kTwo64 = 18446744073709551616.0;
  switch (number.kind()) {
    case Kind::kDouble:
      return number.number();
    case Kind::kWhole: {
      const auto value = static_cast<double>(number.whole());
      const bool is_exact = value < kTwo64 && static_cast<uint64_t>(value) == number.whole();
      return is_exact ? std::optional(value) : std::nullopt;
    }
    case Kind::kNegative: {
      const auto value = static_cast<double>(number.negative());
      const bool is_exact = static_cast<int64_t>(value) == number.negative();
      return is_exact ? std::optional(value) : std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

// What messages call a value.
std::string Shown(json::Node node) {
  switch (node.kind()) {
    case Kind::kNull:
      return "null";
    case Kind::kFalse:
      return "false";
    case Kind::kTrue:
      return "true";
    case Kind::kWhole:
      return std::to_string(node.whole());
    case Kind::kNegative:
      return std::to_string(node.negative());
    case Kind::kDouble:
      return fmt::format("{}", node.number());
    case Kind::kBig:
    case Kind::kText:
      return Quoted(node.text());
    case Kind::kList:
      return "a list";
    case Kind::kObject:
      return "an object";
  }
  return "";
}

std::optional<uint64_t> Bits(Dtype dtype, json::Node number) {
  if (dtype == Dtype::kBool) {
    if (number.kind() == Kind::kTrue) return 1;
    return number.kind() == Kind::kFalse ? std::optional<uint64_t>(0) : std::nullopt;
  }
  if (IsInteger(dtype)) return EncodeInteger(dtype, 8 * ItemSize(dtype), number);
  const auto real = DoubleOf(number);
  return real ? EncodeFloat(dtype, *real) : std::nullopt;
}

}  // namespace

bool IsNumeric(Dtype dtype) {
  return dtype == Dtype::kBool || IsInteger(dtype) || EncodeFloat(dtype, 1).has_value();
}

void AppendElement(std::string& out, Dtype dtype, json::Node number) {
  const auto bits = Bits(dtype, number);
  if (!bits) Fail(EBADMSG, "has {} in it, which is no {}", Shown(number), Name(dtype));
  out.append(reinterpret_cast<const char*>(&*bits), ItemSize(dtype));
}

}  // namespace ckptfs::zanj
