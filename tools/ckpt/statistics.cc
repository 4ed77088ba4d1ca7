#include "tools/ckpt/statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstddef>
#include <numeric>
#include <span>
#include <type_traits>
#include <vector>

#include "tools/ckpt/elements.h"
#include "tools/ckpt/entries.h"

namespace ckptfs::ckpt {
namespace {

// Elements that are decoded at a time: they stay in the first level of the cache. Numbers that need
// not be decoded are not copied there.
constexpr size_t kDecodedAtOnce = 2048;

// Sums and extremes in independent lanes, so that the compiler uses vector registers.
constexpr size_t kLanes = 16;

// The type to which elements are converted for their figures.
template <typename Value>
struct Measured {
  using Type = Value;
  static Type Of(Value value) { return value; }
};

template <>
struct Measured<bool> {
  using Type = uint8_t;
  static Type Of(bool value) { return value ? 1 : 0; }
};

template <typename Part>
struct Measured<std::complex<Part>> {
  using Type = double;
  static Type Of(std::complex<Part> value) {
    if (std::isnan(value.real()) || std::isnan(value.imag())) {
      return std::numeric_limits<double>::quiet_NaN();
    }
    return std::hypot(static_cast<double>(value.real()), static_cast<double>(value.imag()));
  }
};

// Whether the bytes of elements are the numbers that are measured, on processors that are
// little-endian.
template <typename Element>
constexpr bool kIsNumber =
    std::is_same_v<Element, Native<typename Measured<typename Element::Value>::Type>>;

template <typename T>
Number NumberOf(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<double>(value);
  } else if constexpr (std::is_signed_v<T>) {
    return static_cast<int64_t>(value);
  } else {
    return static_cast<uint64_t>(value);
  }
}

// Calls function(lane, value) for each value, with lanes that take turns.
template <typename T, typename Function>
void ForLanes(std::span<const T> values, const Function& function) {
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) function(lane, values[i + lane]);
  }
  for (size_t lane = 0; i < values.size(); ++lane, ++i) function(lane, values[i]);
}

template <typename T>
bool IsFinite(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::abs(value) <= std::numeric_limits<T>::max();
  }
  return true;
}

// Moves the finite values to the front, and returns them. Counts the others.
template <typename T>
std::span<T> Finite(std::span<T> values, Statistics& statistics) {
  if constexpr (!std::is_floating_point_v<T>) return values;
  std::array<uint32_t, kLanes> finite{};
  ForLanes(std::span<const T>(values),
           [&](size_t lane, T value) { finite[lane] += IsFinite(value) ? 1 : 0; });
  uint64_t count = 0;
  for (const uint32_t n : finite) count += n;
  if (count == values.size()) return values;
  const auto nans =
      static_cast<uint64_t>(std::ranges::count_if(values, [](T value) { return value != value; }));
  statistics.nans += nans;
  statistics.infinities += values.size() - count - nans;
  const auto end = std::remove_if(values.begin(), values.end(), [](T v) { return !IsFinite(v); });
  return values.first(static_cast<size_t>(end - values.begin()));
}

// Returns the sum of the squares of the distances from `mean`.
template <typename T>
double SquaresOf(std::span<const T> values, double mean) {
  std::array<double, kLanes> squares{};
  ForLanes(values, [&](size_t lane, T value) {
    const double distance = static_cast<double>(value) - mean;
    squares[lane] += distance * distance;
  });
  return std::accumulate(squares.begin(), squares.end(), 0.0);
}

// Returns the figures of finite values. If there are others, or the sum overflows, the mean is not
// finite.
template <typename T>
Statistics OfFinite(std::span<const T> values) {
  Statistics statistics;
  statistics.count = values.size();
  std::array<T, kLanes> least{}, most{};
  least.fill(values[0]);
  most.fill(values[0]);
  std::array<double, kLanes> sums{}, squares{};
  std::array<uint32_t, kLanes> zeros{};
  ForLanes(values, [&](size_t lane, T value) {
    least[lane] = value < least[lane] ? value : least[lane];
    most[lane] = value > most[lane] ? value : most[lane];
    zeros[lane] += value == T() ? 1 : 0;
    const auto number = static_cast<double>(value);
    sums[lane] += number;
    squares[lane] += number * number;
  });
  statistics.zeros = std::accumulate(zeros.begin(), zeros.end(), uint64_t{0});
  statistics.min = NumberOf(*std::ranges::min_element(least));
  statistics.max = NumberOf(*std::ranges::max_element(most));
  const double sum = std::accumulate(sums.begin(), sums.end(), 0.0);
  const double square = std::accumulate(squares.begin(), squares.end(), 0.0);
  statistics.mean = sum / static_cast<double>(values.size());
  statistics.squares = square - sum * statistics.mean;
  // The difference has lost digits if it is small. Overflows end here, too.
  constexpr double kMostLost = 1024;
  if (!(statistics.squares * kMostLost >= square) || !std::isfinite(square)) {
    statistics.squares = SquaresOf(values, statistics.mean);
  }
  return statistics;
}

template <typename T>
Statistics OfBlock(std::span<T> block) {
  Statistics statistics = OfFinite(std::span<const T>(block));
  if (!std::is_floating_point_v<T> || std::isfinite(statistics.mean)) return statistics;
  Statistics others;
  const std::span<const T> values = Finite(block, others);
  if (values.empty()) {
    statistics = {.min = NumberOf(T()), .max = NumberOf(T())};
  } else {
    statistics = OfFinite(values);
  }
  statistics.count = block.size();
  statistics.nans = others.nans;
  statistics.infinities = others.infinities;
  return statistics;
}

#if defined(__x86_64__)
// The same, by the wider registers that most processors have.
template <typename T>
[[gnu::target("avx2,fma"), gnu::flatten]] Statistics OfBlockByAvx2(std::span<T> block) {
  return OfBlock(block);
}

template <typename T>
auto FastestForBlock() {
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return has_avx2 ? OfBlockByAvx2<T> : OfBlock<T>;
}
#else
template <typename T>
auto FastestForBlock() {
  return OfBlock<T>;
}
#endif

// Reads elements `begin` to `end`, and calls function(values) with some of them at a time, which it
// may change.
template <typename Element, typename Function>
void ForBlocks(const Tensor& tensor, uint64_t begin, uint64_t end, const Function& function) {
  using Conversion = Measured<typename Element::Value>;
  using Type = typename Conversion::Type;
  constexpr uint64_t kReadAtOnce =
      (uint64_t{256} << 10U) / Element::kSize;  // For the second level.
  using Stored =
      std::conditional_t<kIsNumber<Element>, Type, std::array<std::byte, Element::kSize>>;
  std::vector<Stored> buffer(std::min(kReadAtOnce, end - begin));
  while (begin < end) {
    const std::span chunk = std::span(buffer).first(std::min(kReadAtOnce, end - begin));
    tensor.data.source->ReadAt(tensor.data.offset + begin * Element::kSize,
                               std::as_writable_bytes(chunk));
    begin += chunk.size();
    if constexpr (kIsNumber<Element>) {
      function(chunk);
    } else {
      std::array<Type, kDecodedAtOnce> block{};
      for (size_t at = 0; at < chunk.size(); at += kDecodedAtOnce) {
        const size_t count = std::min(kDecodedAtOnce, chunk.size() - at);
        for (size_t i = 0; i < count; ++i) {
          block[i] = Conversion::Of(Element::Load(chunk[at + i].data()));
        }
        function(std::span(block).first(count));
      }
    }
  }
}

}  // namespace

std::string NumberText(const Number& number) {
  return std::visit([](auto value) { return fmt::format("{}", value); }, number);
}

std::string NumberJson(const Number& number) {
  return std::isfinite(ValueOf(number)) ? NumberText(number) : "null";
}

double ValueOf(const Number& number) {
  return std::visit([](auto value) { return static_cast<double>(value); }, number);
}

double Statistics::Deviation() const {
  return finite() == 0 ? 0 : std::sqrt(squares / static_cast<double>(finite()));
}

// Source: Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample
// Variances", 1979.
void Statistics::Add(const Statistics& other) {
  const auto ours = static_cast<double>(finite());
  const auto theirs = static_cast<double>(other.finite());
  if (theirs > 0) {
    min = ours > 0 ? std::min(min, other.min) : other.min;
    max = ours > 0 ? std::max(max, other.max) : other.max;
    const double distance = other.mean - mean;
    const double share = theirs / (ours + theirs);
    mean += distance * share;
    squares += other.squares + distance * ours * share * distance;  // 0 if there are none of ours.
  }
  count += other.count;
  nans += other.nans;
  infinities += other.infinities;
  zeros += other.zeros;
}

bool HasNumbers(const Tensor& tensor) {
  return VisitElementType(tensor.dtype, [](auto) {}) && tensor.sizes == nullptr;
}

std::string NoNumbersText(const Tensor& tensor) {
  return fmt::format("ckpt does not decode {}", DtypeNameOf(tensor));
}

Statistics StatisticsOf(const Tensor& tensor, uint64_t begin, uint64_t end) {
  Statistics statistics;
  VisitElementType(tensor.dtype, [&](auto type) {
    using T = typename Measured<typename decltype(type)::Value>::Type;
    const uint64_t count = end - begin;
    if (count > 0 && tensor.data.source->is_hole()) {  // A few bytes may stand for terabytes.
      statistics = {.count = count, .zeros = count, .min = NumberOf(T()), .max = NumberOf(T())};
      return;
    }
    const auto of_block = FastestForBlock<T>();
    ForBlocks<decltype(type)>(tensor, begin, end,
                              [&](auto values) { statistics.Add(of_block(values)); });
  });
  return statistics;
}

std::vector<uint64_t> HistogramOf(const Tensor& tensor, double min, double max, size_t bins) {
  std::vector<uint64_t> counts(bins);
  const double scale = static_cast<double>(bins) / (max - min);
  const auto last = static_cast<double>(bins - 1);
  VisitElementType(tensor.dtype, [&](auto type) {
    ForBlocks<decltype(type)>(tensor, 0, ElementCountOf(tensor), [&](auto values) {
      for (const auto value : values) {
        if (!IsFinite(value)) continue;
        // NaN, of a range that overflows, is in the first bin.
        const double place = std::max(0.0, (static_cast<double>(value) - min) * scale);
        ++counts[static_cast<size_t>(std::min(place, last))];
      }
    });
  });
  return counts;
}

}  // namespace ckptfs::ckpt
