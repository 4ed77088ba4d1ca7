#include "tools/ckpt/comparison.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include "tools/ckpt/elements.h"
#include "tools/ckpt/statistics.h"

namespace ckptfs::ckpt {
namespace {

// Elements that are compared at a time.
constexpr uint64_t kElementsAtOnce = 32768;

void AddPair(double a, double b, Comparison& sum, bool& differs) {
  const bool is_same = a == b || (std::isnan(a) && std::isnan(b));
  if (!is_same) {
    differs = true;
    const double distance = std::abs(a - b);
    const double larger = std::max(std::abs(a), std::abs(b));
    const bool is_finite = std::isfinite(distance);
    const double infinite = std::numeric_limits<double>::infinity();
    sum.max_absolute = std::max(sum.max_absolute, is_finite ? distance : infinite);
    sum.max_relative = std::max(sum.max_relative, is_finite ? distance / larger : infinite);
  }
  if (!std::isfinite(a) || !std::isfinite(b)) return;
  sum.dot += a * b;
  sum.left += a * a;
  sum.right += b * b;
}

__extension__ using Wide = __int128;

// As AddPair, but exactly: integers of 64 bits that differ may have the same double.
void AddIntegers(Wide a, Wide b, Comparison& sum, bool& differs) {
  const auto left = static_cast<double>(a), right = static_cast<double>(b);
  if (a != b) {
    differs = true;
    const auto distance = static_cast<double>(a < b ? b - a : a - b);
    sum.max_absolute = std::max(sum.max_absolute, distance);
    sum.max_relative =
        std::max(sum.max_relative, distance / std::max(std::abs(left), std::abs(right)));
  }
  sum.dot += left * right;
  sum.left += left * left;
  sum.right += right * right;
}

// Decodes elements as pairs of doubles; the second is 0 unless they are complex.
template <typename Element>
void Decode(std::span<const std::byte> bytes, std::span<std::complex<double>> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    const auto value = Element::Load(bytes.data() + i * Element::kSize);
    if constexpr (requires { value.real(); }) {
      values[i] = {static_cast<double>(value.real()), static_cast<double>(value.imag())};
    } else {
      values[i] = {static_cast<double>(value), 0};
    }
  }
}

bool IsWide(const Tensor& tensor) {
  return tensor.dtype == Dtype::kInt64 || tensor.dtype == Dtype::kUint64;
}

bool HasIntegers(const Tensor& tensor) {
  bool result = false;
  VisitElementType(tensor.dtype,
                   [&](auto type) { result = std::is_integral_v<typename decltype(type)::Value>; });
  return result;
}

class Reader {
 public:
  explicit Reader(const Tensor& tensor) : tensor_(tensor), size_(ItemSize(tensor.dtype)) {}

  // Reads `count` elements. The result is valid until the next call.
  std::span<const std::byte> Read(uint64_t begin, uint64_t count) {
    bytes_.resize(count * size_);
    tensor_.data.source->ReadAt(tensor_.data.offset + begin * size_, bytes_);
    return bytes_;
  }

  std::span<const std::complex<double>> Values() {
    values_.resize(bytes_.size() / size_);
    VisitElementType(tensor_.dtype, [&](auto type) { Decode<decltype(type)>(bytes_, values_); });
    return values_;
  }

  // Of a tensor that HasIntegers.
  std::span<const Wide> Integers() {
    integers_.resize(bytes_.size() / size_);
    VisitElementType(tensor_.dtype, [&](auto type) {
      using Element = decltype(type);
      if constexpr (std::is_integral_v<typename Element::Value>) {
        for (size_t i = 0; i < integers_.size(); ++i) {
          integers_[i] = +Element::Load(bytes_.data() + i * Element::kSize);  // No character.
        }
      }
    });
    return integers_;
  }

 private:
  const Tensor& tensor_;
  const uint64_t size_;
  std::vector<std::byte> bytes_;
  std::vector<std::complex<double>> values_;
  std::vector<Wide> integers_;
};

}  // namespace

double Comparison::Cosine() const {
  if (left == 0 && right == 0) return 1;
  if (left == 0 || right == 0) return 0;
  return dot / (std::sqrt(left) * std::sqrt(right));
}

void Comparison::Add(const Comparison& other) {
  count += other.count;
  differing += other.differing;
  max_absolute = std::max(max_absolute, other.max_absolute);
  max_relative = std::max(max_relative, other.max_relative);
  dot += other.dot;
  left += other.left;
  right += other.right;
}

bool AreSame(const Tensor& a, const Tensor& b, uint64_t begin, uint64_t end) {
  if (a.data.source->is_hole() && b.data.source->is_hole()) return true;
  // Both buffers stay in the second level of the cache.
  constexpr uint64_t kBytesAtOnce = uint64_t{256} << 10U;
  std::vector<std::byte> left(std::min(kBytesAtOnce, end - begin));
  std::vector<std::byte> right(left.size());
  for (uint64_t at = begin; at < end;) {
    const size_t size = std::min(kBytesAtOnce, end - at);
    a.data.source->ReadAt(a.data.offset + at, std::span(left).first(size));
    b.data.source->ReadAt(b.data.offset + at, std::span(right).first(size));
    if (std::memcmp(left.data(), right.data(), size) != 0) return false;
    at += size;
  }
  return true;
}

Comparison Compare(const Tensor& a, const Tensor& b, uint64_t begin, uint64_t end) {
  Comparison result;
  result.count = end - begin;
  Reader left(a), right(b);
  const bool has_numbers = HasNumbers(a) && HasNumbers(b);
  const bool is_exact = (IsWide(a) || IsWide(b)) && HasIntegers(a) && HasIntegers(b);
  for (uint64_t at = begin; at < end; at += kElementsAtOnce) {
    const uint64_t count = std::min(kElementsAtOnce, end - at);
    const std::span ours = left.Read(at, count);
    const std::span theirs = right.Read(at, count);
    if (!has_numbers) {
      for (size_t i = 0; i < ours.size(); ++i) result.differing += ours[i] != theirs[i] ? 1 : 0;
      continue;
    }
    if (is_exact) {
      const std::span our_integers = left.Integers();
      const std::span their_integers = right.Integers();
      for (size_t i = 0; i < count; ++i) {
        bool differs = false;
        AddIntegers(our_integers[i], their_integers[i], result, differs);
        result.differing += differs ? 1 : 0;
      }
      continue;
    }
    const std::span our_values = left.Values();
    const std::span their_values = right.Values();
    for (size_t i = 0; i < count; ++i) {
      bool differs = false;
      AddPair(our_values[i].real(), their_values[i].real(), result, differs);
      AddPair(our_values[i].imag(), their_values[i].imag(), result, differs);
      result.differing += differs ? 1 : 0;
    }
  }
  return result;
}

}  // namespace ckptfs::ckpt
