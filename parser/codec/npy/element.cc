#include "parser/codec/npy/element.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "parser/base/encoding.h"
#include "parser/base/json.h"
#include "parser/base/utf8.h"
#include "parser/codec/npy/ml_dtypes.h"
#include "parser/codec/npy/time.h"

namespace ckptfs::npy {
namespace {

constexpr MlDtype kHalf = {"float16", Dtype::kFloat16, 2, 2, MlDtype::Special::kInfinities, 5, 10,
                           15};

template <typename T>
T Load(std::string_view bytes) {
  T number;
  std::memcpy(&number, bytes.data(), sizeof number);
  return number;
}

// A float32 prints as NumPy prints it, with the digits that tell it from its neighbours.
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

// The long double of x86: 64 bits of fraction, the first of which is set unless the number is tiny,
// 16 of sign and exponent, and padding, which may be anything. Other processors have other formats
// of the same name and size: what cannot be this one is bytes. A number that a double cannot have is
// a text, so that no reader rounds it.
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

// UCS-4, without the zeros at the end, which NumPy does not tell from padding.
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
