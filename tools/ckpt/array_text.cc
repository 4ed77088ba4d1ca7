#include "tools/ckpt/array_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <complex>
#include <cstddef>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>

#include "parser/base/error.h"
#include "tools/ckpt/elements.h"
#include "tools/ckpt/entries.h"

namespace ckptfs::ckpt {
namespace {

constexpr uint64_t kThreshold = 1000;  // Larger arrays are summarized.
constexpr uint64_t kEdge = 3;          // Elements at both ends of an axis then.
constexpr size_t kLineWidth = 75;
constexpr int kPrecision = 8;  // Digits after the point.
constexpr size_t kMostShown = 10000;

// The indices of an axis that are shown.
struct Axis {
  uint64_t size = 0;
  bool is_summarized = false;

  uint64_t shown() const { return is_summarized ? 2 * kEdge : size; }
  uint64_t IndexOf(uint64_t i) const {
    return is_summarized && i >= kEdge ? size - 2 * kEdge + i : i;
  }
};

std::vector<Axis> AxesOf(const Tensor& tensor) {
  const bool is_large = ElementCountOf(tensor) > kThreshold;
  std::vector<Axis> axes;
  size_t shown = 1;
  for (const uint64_t size : tensor.shape) {
    axes.push_back({.size = size, .is_summarized = is_large && size > 2 * kEdge});
    shown *= axes.back().shown();
    if (shown > kMostShown) Fail(EFBIG, "more than {} elements would be shown", kMostShown);
  }
  return axes;
}

// Calls function(index) for each element that is shown, in ascending order.
template <typename Function>
void ForShown(std::span<const Axis> axes, uint64_t base, const Function& function) {
  if (axes.empty()) return function(base);
  for (uint64_t i = 0; i < axes[0].shown(); ++i) {
    ForShown(axes.subspan(1), base * axes[0].size + axes[0].IndexOf(i), function);
  }
}

template <typename Element>
std::vector<typename Element::Value> Shown(const Tensor& tensor, std::span<const Axis> axes) {
  std::vector<typename Element::Value> values;
  ForShown(axes, 0, [&](uint64_t index) {
    std::array<std::byte, Element::kSize> bytes{};
    tensor.data.source->ReadAt(tensor.data.offset + index * Element::kSize, bytes);
    values.push_back(Element::Load(bytes.data()));
  });
  return values;
}

// Digits of a number, in parts.
struct Digits {
  std::string whole;     // With its sign; of what is not finite "nan", "inf" or "-inf".
  std::string fraction;  // After the point.
  std::string exponent;  // "e+05"; may be empty.
};

Digits Split(std::string text) {
  Digits digits;
  const size_t e = std::min(text.find('e'), text.size());
  digits.exponent = text.substr(e);
  text.resize(e);
  const size_t point = std::min(text.find('.'), text.size());
  digits.whole = text.substr(0, point);
  if (point < text.size()) digits.fraction = text.substr(point + 1);
  return digits;
}

// Whether the decimal number `text` is read as `value`, and not as one of its neighbours.
template <typename Element, typename T>
bool IsReadAs(const std::string& text, T value) {
  if constexpr (requires { Element::kNarrow; }) {
    double read = 0;
    std::from_chars(text.data(), text.data() + text.size(), read);
    const int exponent = value == 0 ? Element::kNarrow.min_exponent : std::ilogb(value);
    const double distance = std::abs(read - static_cast<double>(value));
    const int unit =
        std::max(exponent, Element::kNarrow.min_exponent) - Element::kNarrow.mantissa_bits;
    // A number in the middle is read as the neighbour whose last bit is 0.
    const bool is_even = std::fmod(std::ldexp(static_cast<double>(value), -unit), 2) == 0;
    const double half = std::ldexp(0.5, unit);
    return distance < half || (is_even && distance == half);
  } else {
    T read{};
    std::from_chars(text.data(), text.data() + text.size(), read);
    return read == value;
  }
}

// Returns the fewest digits that are read back as `value`, at most kPrecision of them after the
// point.
template <typename Element, typename T>
Digits DigitsOf(T value, bool is_scientific) {
  if (std::isnan(value)) return {"nan", "", ""};
  if (std::isinf(value)) return {value > 0 ? "inf" : "-inf", "", ""};
  std::string text;
  for (int precision = 0; precision <= kPrecision; ++precision) {
    text = is_scientific ? fmt::format("{:.{}e}", value, precision)
                         : fmt::format("{:.{}f}", value, precision);
    if (IsReadAs<Element>(text, value)) break;
  }
  Digits digits = Split(text);
  digits.fraction.resize(digits.fraction.find_last_not_of('0') + 1);
  return digits;
}

// The smallest number that is written with an exponent.
template <typename Element, typename T>
T ScientificFrom() {
  int digits = std::numeric_limits<T>::digits10;
  if constexpr (std::is_same_v<Element, Float16>) digits = 3;
  return static_cast<T>(std::pow(10, std::min(8, digits)));
}

enum class Sign : uint8_t { kIfNegative, kAlways };

// Returns numbers with points below each other. Source: FloatingFormat in
// numpy/_core/arrayprint.py.
template <typename Element, typename T>
std::vector<std::string> FloatTexts(std::span<const T> values, Sign sign) {
  T least = std::numeric_limits<T>::infinity();
  T most = 0;
  for (const T value : values) {
    if (!std::isfinite(value) || value == 0) continue;
    least = std::min(least, std::abs(value));
    most = std::max(most, std::abs(value));
  }
  const bool is_scientific = most > 0 && (most >= ScientificFrom<Element, T>() ||
                                          least < T(0.0001) || most / least > T(1000));
  std::vector<Digits> all;
  size_t whole = 0, fraction = 0, exponent = 0;
  for (const T value : values) {
    Digits& digits = all.emplace_back(DigitsOf<Element>(value, is_scientific));
    if (sign == Sign::kAlways && !digits.whole.starts_with('-')) digits.whole.insert(0, "+");
    if (!std::isfinite(value)) continue;
    whole = std::max(whole, digits.whole.size());
    fraction = std::max(fraction, digits.fraction.size());
    exponent = std::max(exponent, digits.exponent.size());
  }
  const size_t right = fraction + 1 + exponent;  // Columns from the point on.
  for (size_t i = 0; i < all.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    whole = std::max(whole, all[i].whole.size() - std::min(all[i].whole.size(), right));
  }
  std::vector<std::string> texts;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!std::isfinite(values[i])) {
      texts.push_back(fmt::format("{:>{}}", all[i].whole, whole + right));
    } else if (is_scientific) {
      std::string text = fmt::format("{:#.{}e}", values[i], fraction);
      if (sign == Sign::kAlways && !text.starts_with('-')) text.insert(0, "+");
      texts.push_back(fmt::format("{:>{}}", text, whole + right));
    } else {
      texts.push_back(fmt::format("{:>{}}.{:<{}}", all[i].whole, whole, all[i].fraction, fraction));
    }
  }
  return texts;
}

template <typename T>
std::vector<std::string> IntegerTexts(std::span<const T> values) {
  std::vector<std::string> texts;
  size_t width = 0;
  for (const T value : values) {
    texts.push_back(fmt::format("{}", value));
    width = std::max(width, texts.back().size());
  }
  for (std::string& text : texts) text.insert(0, width - text.size(), ' ');
  return texts;
}

std::vector<std::string> BoolTexts(const std::vector<bool>& values, bool is_scalar) {
  std::vector<std::string> texts;
  texts.reserve(values.size());
  for (const bool value : values) {
    texts.emplace_back(!value ? "False" : is_scalar ? "True" : " True");
  }
  return texts;
}

template <typename Element, typename T>
std::vector<std::string> ComplexTexts(std::span<const std::complex<T>> values) {
  std::vector<T> reals, imaginaries;
  for (const std::complex<T>& value : values) {
    reals.push_back(value.real());
    imaginaries.push_back(value.imag());
  }
  std::vector<std::string> texts = FloatTexts<Element, T>(reals, Sign::kIfNegative);
  const std::vector<std::string> others = FloatTexts<Element, T>(imaginaries, Sign::kAlways);
  for (size_t i = 0; i < texts.size(); ++i) {
    std::string other = others[i];
    other.insert(other.find_last_not_of(' ') + 1, "j");
    texts[i] += other;
  }
  return texts;
}

// Puts the texts of elements into brackets and lines. Source: _formatArray in the same file.
class Layout {
 public:
  Layout(std::span<const Axis> axes, std::span<const std::string> texts)
      : axes_(axes), texts_(texts) {}

  std::string Text() { return Part(0, " ", kLineWidth); }

 private:
  // Returns the array at `depth`, whose further lines begin with `indent`.
  std::string Part(size_t depth, const std::string& indent, size_t width) {
    if (depth == axes_.size()) return texts_[next_++];
    const Axis& axis = axes_[depth];
    const bool is_row = depth + 1 == axes_.size();
    const std::string line_end(is_row ? 0 : axes_.size() - depth - 1, '\n');
    std::string text, line = indent;
    const auto extend = [&](const std::string& word) {
      if (line.size() + word.size() > width - 1 && line.size() > indent.size()) {
        line.resize(line.find_last_not_of(' ') + 1);
        text += line + "\n";
        line = indent;
      }
      line += word;
    };
    for (uint64_t i = 0; i < axis.shown(); ++i) {
      const bool is_last = i + 1 == axis.shown();
      if (is_row) {
        if (axis.is_summarized && i == kEdge) {
          extend("...");
          line += ' ';
        }
        extend(Part(depth + 1, indent, width));
        if (!is_last) line += ' ';
      } else {
        if (axis.is_summarized && i == kEdge) text.append(indent).append("...").append(line_end);
        text.append(indent).append(Part(depth + 1, indent + " ", width - 1));
        if (!is_last) text += line_end;
      }
    }
    if (is_row) text += line;
    return "[" + text.substr(indent.size()) + "]";
  }

  std::span<const Axis> axes_;
  std::span<const std::string> texts_;
  size_t next_ = 0;
};

template <typename Element>
std::vector<std::string> TextsOf(const std::vector<typename Element::Value>& values,
                                 bool is_scalar) {
  using Value = typename Element::Value;
  if constexpr (std::is_same_v<Value, bool>) {
    return BoolTexts(values, is_scalar);
  } else if constexpr (std::is_integral_v<Value>) {
    return IntegerTexts<Value>(values);
  } else if constexpr (std::is_floating_point_v<Value>) {
    return FloatTexts<Element, Value>(values, Sign::kIfNegative);
  } else {
    return ComplexTexts<typename Element::Real, typename Value::value_type>(values);
  }
}

}  // namespace

std::string ArrayText(const Tensor& tensor) {
  const std::vector<Axis> axes = AxesOf(tensor);
  std::vector<std::string> texts;
  VisitElementType(tensor.dtype, [&](auto type) {
    if (tensor.data.length > 0)
      texts = TextsOf<decltype(type)>(Shown<decltype(type)>(tensor, axes), axes.empty());
  });
  if (texts.empty()) return "[]";
  return Layout(axes, texts).Text();
}

}  // namespace ckptfs::ckpt
