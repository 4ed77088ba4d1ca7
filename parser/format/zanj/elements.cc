#include "parser/format/zanj/elements.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "parser/base/error.h"
#include "parser/format/zanj/value.h"

namespace ckptfs::zanj {
namespace {

class Lists {
 public:
  Lists(Dtype dtype, Externals& externals) : dtype_(dtype), externals_(externals) {}

  // Appends the elements of `node`, which has the dimensions `shape`.
  void Append(json::Node node, std::span<const uint64_t> shape) {
    if (shape.empty()) return AppendElement(elements_, dtype_, node);
    if (TagOf(node).kind == Tag::Kind::kExternalTable) {
      const Record record = externals_.Open(ReferenceOf(node));
      const json::Document rows = externals_.ReadRows(record);
      return AppendItems(rows.root(), shape);
    }
    if (!node.is_list()) Fail(EBADMSG, "its data have fewer dimensions than its shape");
    AppendItems(node, shape);
  }

  std::string Take() { return std::move(elements_); }

 private:
  void AppendItems(json::Node list, std::span<const uint64_t> shape) {
    if (list.count() != shape[0]) {
      Fail(EBADMSG, "a list of its data has {} items, but its shape needs {}", list.count(),
           shape[0]);
    }
    if (shape.size() == 1) externals_.budget().Charge(list.count() * ItemSize(dtype_));
    json::Items items(list);
    while (const auto item = items.Next()) Append(*item, shape.subspan(1));
  }

  Dtype dtype_;
  Externals& externals_;
  std::string elements_;
};

// Returns the value of a digit; 64 for any other character.
unsigned HexDigit(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? static_cast<unsigned>(lower - 'a' + 10) : 64;
}

unsigned Base64Digit(char c) {
  if (c >= 'A' && c <= 'Z') return static_cast<unsigned>(c - 'A');
  if (c >= 'a' && c <= 'z') return static_cast<unsigned>(c - 'a' + 26);
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0' + 52);
  return c == '+' ? 62 : c == '/' ? 63 : 64;
}

}  // namespace

std::string ElementsOfLists(json::Node data, Dtype dtype, const std::vector<uint64_t>& shape,
                            Externals& externals) {
  // An array without elements may be written with fewer dimensions: "[]" for 0 x 3.
  if (std::ranges::count(shape, uint64_t{0}) != 0) return "";
  Lists lists(dtype, externals);
  lists.Append(data, shape);
  return lists.Take();
}

std::string BytesOfHex(std::string_view text, Budget& budget) {
  if (text.size() % 2 != 0)
    Fail(EBADMSG, "its data have {} hex digits, an odd number", text.size());
  budget.Charge(text.size() / 2);
  std::string bytes;
  bytes.reserve(text.size() / 2);
  for (size_t i = 0; i < text.size(); i += 2) {
    const unsigned high = HexDigit(text[i]);
    const unsigned low = HexDigit(text[i + 1]);
    if (high > 15 || low > 15) {
      Fail(EBADMSG, "its data have {} at character {}, but must be hex", Quoted(text.substr(i, 2)),
           i);
    }
    bytes += static_cast<char>(high * 16 + low);
  }
  return bytes;
}

std::string BytesOfBase64(std::string_view text, Budget& budget) {
  constexpr size_t kGroup = 4;
  if (text.size() % kGroup != 0) {
    Fail(EBADMSG, "its data have {} characters, but base64 comes in groups of {}", text.size(),
         kGroup);
  }
  budget.Charge(text.size() / kGroup * 3);
  std::string bytes;
  bytes.reserve(text.size() / kGroup * 3);
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  const size_t digits = text.size() - padding;
  for (size_t i = 0; i < text.size(); i += kGroup) {
    unsigned group = 0;
    for (size_t j = i; j < i + kGroup; ++j) {
      const unsigned digit = j < digits ? Base64Digit(text[j]) : 0;
      if (digit > 63) {
        Fail(EBADMSG, "its data have {} at character {}, but must be base64",
             Quoted(text.substr(j, 1)), j);
      }
      group = group << 6U | digit;
    }
    bytes += static_cast<char>(group >> 16U);
    bytes += static_cast<char>(group >> 8U);
    bytes += static_cast<char>(group);
  }
  bytes.erase(bytes.size() - padding);
  return bytes;
}

// Python prints a float of any type with the digits that identify it among all float64. The inverse
// conversion is therefore exact: a float64 that the type cannot represent was never an element of
// it.

namespace {

using Kind = json::Node::Kind;

// A binary floating-point type: a sign, an exponent and a fraction.
struct FloatType {
  unsigned exponent_bits = 0;
  unsigned fraction_bits = 0;
  int bias = 0;
  uint64_t nan = 0;           // The bits of NumPy's NaN.
  bool has_infinity = false;  // An exponent of ones is infinity or NaN.
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
  exponent = std::max(exponent - 1, 1 - type.bias);  // Subnormal numbers have no leading one.
  const int fraction_bits = static_cast<int>(type.fraction_bits);
  const double units = std::ldexp(std::fabs(number), fraction_bits - exponent);
  if (units != std::trunc(units)) return std::nullopt;
  // Where there is a leading one, it adds one to the exponent.
  const uint64_t bits = (static_cast<uint64_t>(exponent + type.bias - 1) << type.fraction_bits) +
                        static_cast<uint64_t>(units);
  return bits <= type.largest ? std::optional(sign | bits) : std::nullopt;
}

// float8_e8m0fnu: powers of two only.
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

// Returns the low `bits` bits of an integer; nothing if it does not fit.
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

// Returns a number as a double if that is exact.
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

// Returns the text of a value for messages.
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
  if (!bits) Fail(EBADMSG, "contains {}, which is not {}", Shown(number), Name(dtype));
  out.append(reinterpret_cast<const char*>(&*bits), ItemSize(dtype));
}

}  // namespace ckptfs::zanj
