#include "parser/format/safetensors/dtypes.h"

#include <algorithm>
#include <iterator>

namespace ckptfs::safetensors {
namespace {

// In the order of the reference.
constexpr StoredDtype kRows[] = {
    {"BOOL", 8, Dtype::kBool},
    {"F4", 4, Dtype::kFloat4E2m1fnX2},
    {"F6_E2M3", 6, Dtype::kOpaque},
    {"F6_E3M2", 6, Dtype::kOpaque},
    {"U8", 8, Dtype::kUint8},
    {"I8", 8, Dtype::kInt8},
    {"F8_E5M2", 8, Dtype::kFloat8E5m2},
    {"F8_E4M3", 8, Dtype::kFloat8E4m3fn},
    {"F8_E8M0", 8, Dtype::kFloat8E8m0fnu},
    {"F8_E4M3FNUZ", 8, Dtype::kFloat8E4m3fnuz},
    {"F8_E5M2FNUZ", 8, Dtype::kFloat8E5m2fnuz},
    {"I16", 16, Dtype::kInt16},
    {"U16", 16, Dtype::kUint16},
    {"F16", 16, Dtype::kFloat16},
    {"BF16", 16, Dtype::kBfloat16},
    {"I32", 32, Dtype::kInt32},
    {"U32", 32, Dtype::kUint32},
    {"F32", 32, Dtype::kFloat32},
    {"C64", 64, Dtype::kComplex64},
    {"F64", 64, Dtype::kFloat64},
    {"I64", 64, Dtype::kInt64},
    {"U64", 64, Dtype::kUint64},
};

}  // namespace

const StoredDtype* StoredDtypeNamed(std::string_view name) {
  const auto* row = std::ranges::find(kRows, name, &StoredDtype::name);
  return row == std::end(kRows) ? nullptr : row;
}

}  // namespace ckptfs::safetensors
