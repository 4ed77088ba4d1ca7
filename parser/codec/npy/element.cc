#include "parser/codec/npy/element.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>

#include "parser/base/encoding.h"
#include "parser/base/json.h"
#include "parser/base/text.h"

namespace ckptfs::npy {
namespace {

// A number times its unit does not fit in 64 bits.
__extension__ using Wide = __int128;
__extension__ using UnsignedWide = unsigned __int128;

constexpr int64_t kNotATime = std::numeric_limits<int64_t>::min();

struct Row {
  std::string_view name;
  std::string_view plural;
  int64_t seconds;  // Per unit; 0 if it is shorter or variable.
  int digits;       // Of the fraction of a second.
};

constexpr Row kRows[] = {
    {"Y", "years", 0, 0},         {"M", "months", 0, 0},
    {"W", "weeks", 604'800, 0},   {"D", "days", 86'400, 0},
    {"h", "hours", 3600, 0},      {"m", "minutes", 60, 0},
    {"s", "seconds", 1, 0},       {"ms", "milliseconds", 0, 3},
    {"us", "microseconds", 0, 6}, {"ns", "nanoseconds", 0, 9},
    {"ps", "picoseconds", 0, 12}, {"fs", "femtoseconds", 0, 15},
    {"as", "attoseconds", 0, 18}, {"generic", "generic time units", 0, 0},
};

const Row& RowOf(std::string_view name) {
  const auto* row = std::ranges::find(kRows, name, &Row::name);
  return row != std::end(kRows) ? *row : std::end(kRows)[-1];
}

Wide FloorDivide(Wide a, Wide b) { return a / b - (a % b < 0 ? 1 : 0); }

std::string Text(Wide number) {
  const auto magnitude = static_cast<UnsignedWide>(number < 0 ? -number : number);
  return fmt::format("{}{}", number < 0 ? "-" : "", magnitude);
}

// A year has at least four characters, as in NumPy: "0001", "-001".
std::string YearText(Wide year) {
  std::string digits = Text(year < 0 ? -year : year);
  const size_t width = year < 0 ? 3 : 4;
  if (digits.size() < width) digits.insert(0, width - digits.size(), '0');
  return (year < 0 ? "-" : "") + digits;
}

// The proleptic Gregorian date of a day: https://howardhinnant.github.io/date_algorithms.html.
std::string DateText(Wide days_since_1970) {
  constexpr int64_t kDaysOfEra = 146'097;  // Of 400 years, which begin with March.
  const Wide days = days_since_1970 + 719'468;
  const Wide era = FloorDivide(days, kDaysOfEra);
  const auto day_of_era = static_cast<int64_t>(days - era * kDaysOfEra);
  const int64_t year_of_era =
      (day_of_era - day_of_era / 1460 + day_of_era / 36'524 - day_of_era / 146'096) / 365;
  const int64_t day_of_year =
      day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const int64_t month_from_march = (5 * day_of_year + 2) / 153;
  const int64_t day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
  const int64_t month = month_from_march < 10 ? month_from_march + 3 : month_from_march - 9;
  const Wide year = era * 400 + year_of_era + (month <= 2 ? 1 : 0);
  return fmt::format("{}-{:02}-{:02}", YearText(year), month, day);
}

// A second has `scale` ticks and `digits` decimal places.
std::string InstantText(Wide ticks, int64_t scale, int digits) {
  const Wide seconds = FloorDivide(ticks, scale);
  const Wide days = FloorDivide(seconds, 86'400);
  const auto of_day = static_cast<int64_t>(seconds - days * 86'400);
  std::string text = fmt::format("{}T{:02}:{:02}:{:02}", DateText(days), of_day / 3600,
                                 of_day / 60 % 60, of_day % 60);
  if (digits > 0) {
    text += fmt::format(".{:0{}}", static_cast<int64_t>(ticks - seconds * scale), digits);
  }
  return text;
}

// Returns the unit of "M8[25s]" or "m8", which TypeNamed accepts; `brackets` follows the two
// characters.
TimeUnit TimeUnitOf(std::string_view brackets) {
  if (brackets.size() < 3) return TimeUnitNamed("generic", 1);
  brackets = brackets.substr(1, brackets.size() - 2);
  const int64_t count = TakeNumber<int64_t>(brackets).value_or(1);
  return TimeUnitNamed(brackets, count);
}

// A datetime64 in ISO 8601, as exact as its unit: "2020-02-29", "2020-02-29T12", "NaT".
std::string DateTimeText(int64_t number, const TimeUnit& unit) {
  if (number == kNotATime) return "NaT";
  const Row& row = RowOf(unit.name);
  const Wide ticks = Wide{number} * unit.count;
  if (unit.name == "Y") return YearText(1970 + ticks);
  if (unit.name == "M") {
    const Wide years = FloorDivide(ticks, 12);
    return fmt::format("{}-{:02}", YearText(1970 + years),
                       static_cast<int>(ticks - years * 12) + 1);
  }
  if (row.seconds >= 86'400) return DateText(ticks * (row.seconds / 86'400));
  if (row.seconds > 0) {
    const std::string text = InstantText(ticks * row.seconds, 1, 0);
    const size_t cut = row.seconds == 3600 ? 6 : row.seconds == 60 ? 3 : 0;
    return text.substr(0, text.size() - cut);
  }
  if (row.digits == 0) return Text(ticks);  // No unit: NumPy has no text for it.
  int64_t scale = 1;
  for (int i = 0; i < row.digits; ++i) scale *= 10;
  return InstantText(ticks, scale, row.digits);
}

}  // namespace

TimeUnit TimeUnitNamed(std::string_view name, int64_t count) {
  const auto* row = std::ranges::find(kRows, name, &Row::name);
  return row != std::end(kRows) ? TimeUnit{row->name, count} : TimeUnit{"", count};
}

std::string DurationText(int64_t number, const TimeUnit& unit) {
  if (number == kNotATime) return "NaT";
  return fmt::format("{} {}", Text(Wide{number} * unit.count), RowOf(unit.name).plural);
}

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

namespace {

// The value of a float of a few bits: IEEE 754 binary16 is {.special = kInfinities,
// .exponent_bits = 5, .fraction_bits = 10, .bias = 15}.
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

// Appends an element in JSON. `bytes` are little-endian, `type.item_size` of them.
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

constexpr MlDtype kHalf = {"float16", Dtype::kFloat16, 2, 2, MlDtype::Special::kInfinities, 5, 10,
                           15};

template <typename T>
T Load(std::string_view bytes) {
  T number;
  std::memcpy(&number, bytes.data(), sizeof number);
  return number;
}

// A float32 prints as in NumPy, with the digits that distinguish it from its neighbours.
void AppendFloat(std::string& out, float number) {
  if (!std::isfinite(number)) {
    json::AppendDouble(out, number);
    return;
  }
  const std::string text = fmt::format("{}", number);
  out += text;
  if (text.find_first_of(".e") == std::string::npos) out += ".0";
}

void AppendHexString(std::string& out, std::string_view bytes) {
  out += '"';
  AppendHex(out, bytes);
  out += '"';
}

// The shortest text that reads back as the same number.
std::string ShortestText(long double number) {
  std::array<char, 64> text = {};
  for (int digits = 17; digits <= 21; ++digits) {
    std::snprintf(text.data(), text.size(), "%.*Lg", digits, number);
    if (std::strtold(text.data(), nullptr) == number) break;
  }
  return text.data();
}

// The long double of x86: 64 bits of fraction, the first of which is set except in subnormal
// numbers, 16 bits of sign and exponent, and arbitrary padding. Other processors have other formats
// of the same name and size: invalid values are shown as bytes. A number beyond a double is a text,
// so that no reader rounds it.
void AppendLongDouble(std::string& out, std::string_view bytes) {
  static_assert(std::numeric_limits<long double>::digits >= 64, "port AppendLongDouble");
  const auto fraction = Load<uint64_t>(bytes);
  const auto head = Load<uint16_t>(bytes.substr(8));
  const int exponent = head & 0x7FFF;
  const long double sign = (head & 0x8000U) != 0 ? -1 : 1;
  constexpr uint64_t kInteger = uint64_t{1} << 63U;
  if (exponent != 0 && (fraction & kInteger) == 0) {
    AppendHexString(out, bytes);
    return;
  }
  if (exponent == 0x7FFF) {
    json::AppendDouble(out,
                       (fraction & ~kInteger) != 0 ? NAN : static_cast<double>(sign) * INFINITY);
    return;
  }
  const long double number =
      sign * std::ldexp(static_cast<long double>(fraction), std::max(exponent, 1) - 16383 - 63);
  const auto rounded = static_cast<double>(number);
  if (static_cast<long double>(rounded) == number) {
    json::AppendDouble(out, rounded);
  } else {
    json::AppendString(out, ShortestText(number));
  }
}

// UCS-4, without the trailing zeros, which are padding in NumPy.
void AppendText(std::string& out, std::string_view bytes) {
  std::string text;
  for (size_t i = 0; i + sizeof(uint32_t) <= bytes.size(); i += sizeof(uint32_t)) {
    text += utf8::Encode(static_cast<char32_t>(Load<uint32_t>(bytes.substr(i))));
  }
  text.erase(text.find_last_not_of('\0') + 1);
  json::AppendString(out, text);
}

void AppendForeign(std::string& out, std::string_view code, std::string_view bytes) {
  const auto append_pair = [&](auto append_one) {
    out += '[';
    append_one(out, bytes.substr(0, bytes.size() / 2));
    out += ',';
    append_one(out, bytes.substr(bytes.size() / 2));
    out += ']';
  };
  if (code.starts_with("M8")) {
    json::AppendString(out, DateTimeText(Load<int64_t>(bytes), TimeUnitOf(code.substr(2))));
  } else if (code.starts_with("m8")) {
    json::AppendString(out, DurationText(Load<int64_t>(bytes), TimeUnitOf(code.substr(2))));
  } else if (code.starts_with('U')) {
    AppendText(out, bytes);
  } else if (code == "f16" || code == "f12") {
    AppendLongDouble(out, bytes);
  } else if (code == "c32" || code == "c24") {
    append_pair(AppendLongDouble);
  } else {
    AppendHexString(out, bytes);
  }
}

void AppendLittle(std::string& out, const Type& type, std::string_view bytes) {
  switch (type.dtype) {
    case Dtype::kBool:
      out += bytes[0] != 0 ? "true" : "false";
      return;
    case Dtype::kInt8:
      out += std::to_string(Load<int8_t>(bytes));
      return;
    case Dtype::kUint8:
      out += std::to_string(Load<uint8_t>(bytes));
      return;
    case Dtype::kInt16:
      out += std::to_string(Load<int16_t>(bytes));
      return;
    case Dtype::kUint16:
      out += std::to_string(Load<uint16_t>(bytes));
      return;
    case Dtype::kInt32:
      out += std::to_string(Load<int32_t>(bytes));
      return;
    case Dtype::kUint32:
      out += std::to_string(Load<uint32_t>(bytes));
      return;
    case Dtype::kInt64:
      out += std::to_string(Load<int64_t>(bytes));
      return;
    case Dtype::kUint64:
      out += std::to_string(Load<uint64_t>(bytes));
      return;
    case Dtype::kFloat16:
      json::AppendDouble(out, SmallFloat(kHalf, Load<uint16_t>(bytes)));
      return;
    case Dtype::kFloat32:
      AppendFloat(out, Load<float>(bytes));
      return;
    case Dtype::kFloat64:
      json::AppendDouble(out, Load<double>(bytes));
      return;
    case Dtype::kComplex64:
      out += '[';
      AppendFloat(out, Load<float>(bytes));
      out += ',';
      AppendFloat(out, Load<float>(bytes.substr(4)));
      out += ']';
      return;
    case Dtype::kComplex128:
      out += '[';
      json::AppendDouble(out, Load<double>(bytes));
      out += ',';
      json::AppendDouble(out, Load<double>(bytes.substr(8)));
      out += ']';
      return;
    default:
      AppendForeign(out, std::string_view(type.name).substr(1), bytes);
  }
}

}  // namespace

void AppendElement(std::string& out, const Type& type, std::string_view bytes) {
  const auto width = static_cast<size_t>(type.swap_size);
  std::string little;
  if (type.is_big_endian && width > 1) {
    little = bytes;
    for (size_t i = 0; i + width <= little.size(); i += width) {
      std::reverse(little.data() + i, little.data() + i + width);
    }
    bytes = little;
  }
  if (const MlDtype* ml = MlDtypeNamed(type.name)) {
    AppendMlElement(out, *ml, bytes);
  } else {
    AppendLittle(out, type, bytes);
  }
}

}  // namespace ckptfs::npy
