#include "parser/base/dtype.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <iterator>
#include <utility>

#include "parser/base/error.h"

namespace ckptfs {
namespace {

struct Row {
  std::string_view name;
  uint8_t item_size;
  uint8_t swap_size;
  uint8_t elements = 1;
};

// Indexed by Dtype.
constexpr Row kRows[] = {
    {"opaque", 1, 1},
    {"bool", 1, 1},
    {"uint8", 1, 1},
    {"int8", 1, 1},
    {"uint16", 2, 2},
    {"int16", 2, 2},
    {"uint32", 4, 4},
    {"int32", 4, 4},
    {"uint64", 8, 8},
    {"int64", 8, 8},
    {"float16", 2, 2},
    {"bfloat16", 2, 2},
    {"float32", 4, 4},
    {"float64", 8, 8},
    {"complex32", 4, 2},
    {"complex64", 8, 4},
    {"complex128", 16, 8},
    {"float8_e4m3fn", 1, 1},
    {"float8_e5m2", 1, 1},
    {"float8_e4m3fnuz", 1, 1},
    {"float8_e5m2fnuz", 1, 1},
    {"float8_e8m0fnu", 1, 1},
    {"float4_e2m1fn_x2", 1, 1},
    {"qint8", 1, 1},
    {"quint8", 1, 1},
    {"qint32", 4, 4},
    {"quint4x2", 1, 1, 2},
    {"quint2x4", 1, 1, 4},
    {"bits8", 1, 1},
    {"bits16", 2, 2},
    {"bits1x8", 1, 1},
    {"bits2x4", 1, 1},
    {"bits4x2", 1, 1},
};
static_assert(std::size(kRows) == static_cast<size_t>(Dtype::kBits4x2) + 1);

constexpr std::pair<std::string_view, Dtype> kAliases[] = {
    {"half", Dtype::kFloat16},    {"float", Dtype::kFloat32},    {"double", Dtype::kFloat64},
    {"short", Dtype::kInt16},     {"int", Dtype::kInt32},        {"long", Dtype::kInt64},
    {"chalf", Dtype::kComplex32}, {"cfloat", Dtype::kComplex64}, {"cdouble", Dtype::kComplex128},
};

const Row& RowOf(Dtype dtype) { return kRows[static_cast<size_t>(dtype)]; }

}  // namespace

unsigned ItemSize(Dtype dtype) { return RowOf(dtype).item_size; }
unsigned ElementsPerItem(Dtype dtype) { return RowOf(dtype).elements; }
unsigned SwapSize(Dtype dtype) { return RowOf(dtype).swap_size; }
std::string_view Name(Dtype dtype) { return RowOf(dtype).name; }

std::optional<Dtype> DtypeNamed(std::string_view name) {
  const auto* row = std::ranges::find(std::begin(kRows) + 1, std::end(kRows), name, &Row::name);
  if (row != std::end(kRows)) return static_cast<Dtype>(row - std::begin(kRows));
  for (const auto& [alias, dtype] : kAliases) {
    if (alias == name) return dtype;
  }
  return std::nullopt;
}

uint64_t ByteSize(Dtype dtype, const std::vector<uint64_t>& shape) {
  if (std::ranges::count(shape, uint64_t{0}) != 0) return 0;
  const unsigned per_item = ElementsPerItem(dtype);
  int64_t bytes = ItemSize(dtype);
  for (size_t i = 0; i < shape.size(); ++i) {
    const bool is_row = i + 1 == shape.size();
    const uint64_t items = is_row ? shape[i] / per_item + (shape[i] % per_item != 0) : shape[i];
    if (__builtin_mul_overflow(bytes, items, &bytes)) {
      Fail(EOVERFLOW, "its shape needs more than 2^63 bytes");
    }
  }
  return static_cast<uint64_t>(bytes);
}

}  // namespace ckptfs
