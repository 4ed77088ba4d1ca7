#include "tools/ckpt/cast.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "tools/ckpt/elements.h"

namespace ckptfs::ckpt {
namespace {

// To the nearest value, and to an even mantissa in the middle, as all of these.
uint16_t ToBfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  constexpr uint16_t kNan = 0x7fc0;  // PyTorch's.
  if (std::isnan(value)) return kNan;
  return static_cast<uint16_t>((bits + 0x7fffU + (bits >> 16U & 1U)) >> 16U);
}

uint16_t ToFloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16U & 0x8000U);
  const uint32_t magnitude = bits & 0x7fffffffU;
  constexpr uint16_t kNan = 0x7e00;
  constexpr uint16_t kInfinity = 0x7c00;
  if (magnitude > 0x7f800000U) return sign | kNan;
  if (magnitude >= 0x47800000U) return sign | kInfinity;  // 65536 and more.
  if (magnitude < 0x38800000U) {                          // Less than the smallest normal number.
    // The addition rounds at the bit that is the last one of a denormal.
    const float rounded = std::bit_cast<float>(magnitude) + 0.5F;
    return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(rounded) - 0x3f000000U);
  }
  const uint32_t rounded = magnitude + 0xfffU + (magnitude >> 13U & 1U);
  return sign | static_cast<uint16_t>((rounded - 0x38000000U) >> 13U);
}

template <typename From>
void CastElements(Dtype to, std::span<const std::byte> from, std::byte* out) {
  const auto each = [&](auto convert) {
    for (size_t at = 0; at < from.size(); at += From::kSize) {
      const auto value = convert(From::Load(from.data() + at));
      std::memcpy(out, &value, sizeof(value));
      out += sizeof(value);
    }
  };
  using Value = typename From::Value;
  // PyTorch, too, rounds a double to a float first.
  if (to == Dtype::kBfloat16)
    return each([](Value v) { return ToBfloat16(static_cast<float>(v)); });
  if (to == Dtype::kFloat16) return each([](Value v) { return ToFloat16(static_cast<float>(v)); });
  if (to == Dtype::kFloat32) return each([](Value v) { return static_cast<float>(v); });
  each([](Value v) { return static_cast<double>(v); });
}

// The elements of a tensor, cast when they are read.
class CastSource final : public ByteSource {
 public:
  CastSource(Extent data, Dtype from, Dtype to)
      : data_(std::move(data)),
        from_(from),
        to_(to),
        from_size_(ItemSize(from)),
        to_size_(ItemSize(to)) {}

  std::string name() const override { return data_.source->name(); }
  uint64_t size() const override { return data_.length / from_size_ * to_size_; }
  bool is_remote() const override { return data_.source->is_remote(); }

  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    constexpr size_t kMostElements = size_t{1} << 14U;
    std::vector<std::byte> from;
    std::vector<std::byte> to;
    while (!buffer.empty()) {
      const uint64_t first = offset / to_size_;
      const uint64_t skipped = offset % to_size_;
      const uint64_t wanted = (skipped + buffer.size() + to_size_ - 1) / to_size_;
      const size_t count = std::min<uint64_t>(kMostElements, wanted);
      from.resize(count * from_size_);
      to.resize(count * to_size_);
      data_.source->ReadAt(data_.offset + first * from_size_, from);
      VisitElementType(from_, [&](auto type) {
        if constexpr (std::is_floating_point_v<typename decltype(type)::Value>) {
          CastElements<decltype(type)>(to_, from, to.data());
        }
      });
      const std::span piece = std::span(to).subspan(skipped).first(
          std::min<size_t>(to.size() - skipped, buffer.size()));
      std::ranges::copy(piece, buffer.begin());
      buffer = buffer.subspan(piece.size());
      offset += piece.size();
    }
  }

 private:
  const Extent data_;
  const Dtype from_;
  const Dtype to_;
  const unsigned from_size_;  // Bytes.
  const unsigned to_size_;
};

}  // namespace

std::optional<Dtype> CastTypeNamed(std::string_view name) {
  constexpr std::pair<std::string_view, Dtype> kNames[] = {
      {"bf16", Dtype::kBfloat16},   {"bfloat16", Dtype::kBfloat16}, {"f16", Dtype::kFloat16},
      {"fp16", Dtype::kFloat16},    {"float16", Dtype::kFloat16},   {"half", Dtype::kFloat16},
      {"f32", Dtype::kFloat32},     {"fp32", Dtype::kFloat32},      {"float32", Dtype::kFloat32},
      {"float", Dtype::kFloat32},   {"f64", Dtype::kFloat64},       {"fp64", Dtype::kFloat64},
      {"float64", Dtype::kFloat64}, {"double", Dtype::kFloat64},
  };
  for (const auto& [each, dtype] : kNames) {
    if (each == name) return dtype;
  }
  return {};
}

bool IsFloat(Dtype dtype) {
  bool is_float = false;
  VisitElementType(dtype, [&](auto type) {
    is_float = std::is_floating_point_v<typename decltype(type)::Value>;
  });
  return is_float;
}

Tensor Cast(Tensor tensor, Dtype dtype) {
  if (!IsFloat(tensor.dtype) || tensor.dtype == dtype || tensor.sizes != nullptr) return tensor;
  const uint64_t length = ByteSize(dtype, tensor.shape);
  if (tensor.data.source != nullptr) {
    tensor.data.source = std::make_shared<CastSource>(std::move(tensor.data), tensor.dtype, dtype);
  }
  tensor.data.offset = 0;
  tensor.data.length = length;
  tensor.dtype = dtype;
  tensor.is_in_file = false;
  return tensor;
}

}  // namespace ckptfs::ckpt
