#include "parser/layer/conversion.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "parser/base/error.h"

namespace ckptfs {
namespace {

uint16_t Reversed(uint16_t unit) { return __builtin_bswap16(unit); }
uint32_t Reversed(uint32_t unit) { return __builtin_bswap32(unit); }
uint64_t Reversed(uint64_t unit) { return __builtin_bswap64(unit); }

// Replaces each T by `f` of it. Elements may lie at any address.
template <typename T, typename F>
void Replace(std::span<std::byte> bytes, const F& f) {
  assert(bytes.size() % sizeof(T) == 0);
  for (size_t i = 0; i < bytes.size(); i += sizeof(T)) {
    T unit;
    std::memcpy(&unit, &bytes[i], sizeof(T));
    unit = static_cast<T>(f(unit));
    std::memcpy(&bytes[i], &unit, sizeof(T));
  }
}

// As Replace, for integers of `size` bytes.
template <typename F>
void ReplaceIntegers(size_t size, std::span<std::byte> bytes, const F& f) {
  switch (size) {
    case 1:
      return Replace<uint8_t>(bytes, f);
    case 2:
      return Replace<uint16_t>(bytes, f);
    case 4:
      return Replace<uint32_t>(bytes, f);
    default:
      return Replace<uint64_t>(bytes, f);
  }
}

}  // namespace

bool IsComplex(Dtype dtype) { return ItemSize(dtype) != SwapSize(dtype); }

Conversion::Conversion(Dtype dtype, const Storing& storing)
    : item_size_(static_cast<uint8_t>(ItemSize(dtype))) {
  const auto unit = static_cast<uint8_t>(SwapSize(dtype));
  if (storing.is_big_endian) swap_size_ = unit;
  if (storing.is_conjugated && IsComplex(dtype)) {
    negation_ = Negation::kSignBit;
    sign_step_ = item_size_;
    // The negative of the conjugate has the sign of the real part flipped.
    sign_first_ = static_cast<uint8_t>((storing.is_negated ? unit : item_size_) - 1);
  } else if (storing.is_negated) {
    negation_ = NegationOf(dtype);
    sign_step_ = unit;
    sign_first_ = static_cast<uint8_t>(unit - 1);
  }
}

Conversion::Negation Conversion::NegationOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kUint8:
    case Dtype::kInt8:
    case Dtype::kUint16:
    case Dtype::kInt16:
    case Dtype::kUint32:
    case Dtype::kInt32:
    case Dtype::kUint64:
    case Dtype::kInt64:
      return Negation::kTwoComplement;
    case Dtype::kFloat16:
    case Dtype::kBfloat16:
    case Dtype::kFloat32:
    case Dtype::kFloat64:
    case Dtype::kComplex32:
    case Dtype::kComplex64:
    case Dtype::kComplex128:
    case Dtype::kFloat8E4m3fn:
    case Dtype::kFloat8E5m2:
      return Negation::kSignBit;
    case Dtype::kFloat8E4m3fnuz:
    case Dtype::kFloat8E5m2fnuz:
      return Negation::kSignUnlessNan;
    default:
      Fail(ENOTSUP, "it is stored as its negative, but {} has none", Name(dtype));
  }
}

void Conversion::Apply(std::span<std::byte> bytes) const {
  if (swap_size_ > 1) {
    ReplaceIntegers(swap_size_, bytes, [](auto unit) {
      if constexpr (sizeof unit == 1) {
        return unit;
      } else {
        return Reversed(unit);
      }
    });
  }
  switch (negation_) {
    case Negation::kNone:
      break;
    case Negation::kSignBit:
      for (size_t i = sign_first_; i < bytes.size(); i += sign_step_) bytes[i] ^= std::byte{0x80};
      break;
    case Negation::kTwoComplement:
      ReplaceIntegers(item_size_, bytes, [](auto unit) { return decltype(unit){0} - unit; });
      break;
    case Negation::kSignUnlessNan:
      Replace<uint8_t>(bytes, [](uint8_t unit) {
        const bool is_zero_or_nan = (unit & 0x7FU) == 0;
        return is_zero_or_nan ? unit : unit ^ 0x80U;
      });
  }
}

}  // namespace ckptfs
