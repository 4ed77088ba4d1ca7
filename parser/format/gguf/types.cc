#include "parser/format/gguf/types.h"

#include <algorithm>
#include <iterator>

namespace ckptfs::gguf {
namespace {

constexpr StoredType Plain(uint32_t number, std::string_view name, unsigned bytes, Dtype dtype) {
  return {name, number, 1, bytes, dtype};
}

constexpr StoredType Blocks(uint32_t number, std::string_view name, unsigned elements,
                            unsigned bytes) {
  return {name, number, elements, bytes, Dtype::kOpaque};
}

// By number.
constexpr StoredType kRows[] = {
    Plain(0, "F32", 4, Dtype::kFloat32),
    Plain(1, "F16", 2, Dtype::kFloat16),
    Blocks(2, "Q4_0", 32, 18),
    Blocks(3, "Q4_1", 32, 20),
    Blocks(6, "Q5_0", 32, 22),
    Blocks(7, "Q5_1", 32, 24),
    Blocks(8, "Q8_0", 32, 34),
    Blocks(9, "Q8_1", 32, 36),
    Blocks(10, "Q2_K", 256, 84),
    Blocks(11, "Q3_K", 256, 110),
    Blocks(12, "Q4_K", 256, 144),
    Blocks(13, "Q5_K", 256, 176),
    Blocks(14, "Q6_K", 256, 210),
    Blocks(15, "Q8_K", 256, 292),
    Blocks(16, "IQ2_XXS", 256, 66),
    Blocks(17, "IQ2_XS", 256, 74),
    Blocks(18, "IQ3_XXS", 256, 98),
    Blocks(19, "IQ1_S", 256, 50),
    Blocks(20, "IQ4_NL", 32, 18),
    Blocks(21, "IQ3_S", 256, 110),
    Blocks(22, "IQ2_S", 256, 82),
    Blocks(23, "IQ4_XS", 256, 136),
    Plain(24, "I8", 1, Dtype::kInt8),
    Plain(25, "I16", 2, Dtype::kInt16),
    Plain(26, "I32", 4, Dtype::kInt32),
    Plain(27, "I64", 8, Dtype::kInt64),
    Plain(28, "F64", 8, Dtype::kFloat64),
    Blocks(29, "IQ1_M", 256, 56),
    Plain(30, "BF16", 2, Dtype::kBfloat16),
    Blocks(34, "TQ1_0", 256, 54),
    Blocks(35, "TQ2_0", 256, 66),
    Blocks(39, "MXFP4", 32, 17),
    Blocks(40, "NVFP4", 64, 36),
    Blocks(41, "Q1_0", 128, 18),
    Blocks(42, "Q2_0", 64, 18),
};

}  // namespace

const StoredType* StoredTypeOf(uint32_t number) {
  const auto* row = std::ranges::find(kRows, number, &StoredType::number);
  return row == std::end(kRows) ? nullptr : row;
}

}  // namespace ckptfs::gguf
