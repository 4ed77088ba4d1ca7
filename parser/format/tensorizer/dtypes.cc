#include "parser/format/tensorizer/dtypes.h"

#include <charconv>
#include <cstddef>
#include <system_error>

namespace ckptfs::tensorizer {
namespace {

struct Row {
  char kind;
  uint8_t size;  // Bytes.
  Dtype dtype;
};

constexpr Row kRows[] = {
    {'b', 1, Dtype::kBool},      {'u', 1, Dtype::kUint8},       {'i', 1, Dtype::kInt8},
    {'u', 2, Dtype::kUint16},    {'i', 2, Dtype::kInt16},       {'f', 2, Dtype::kFloat16},
    {'u', 4, Dtype::kUint32},    {'i', 4, Dtype::kInt32},       {'f', 4, Dtype::kFloat32},
    {'u', 8, Dtype::kUint64},    {'i', 8, Dtype::kInt64},       {'f', 8, Dtype::kFloat64},
    {'c', 8, Dtype::kComplex64}, {'c', 16, Dtype::kComplex128},
};

// A type of NumPy: "<f4", "|b1", "<M8[D]".
struct ArrayType {
  char order = 0;
  char kind = 0;
  std::optional<uint64_t> size;  // Bytes.
  bool is_plain = false;         // Nothing follows the size.
};

ArrayType ReadArrayType(std::string_view name) {
  ArrayType type;
  if (name.size() < 2) return type;
  type.order = name[0];
  type.kind = name[1];
  const std::string_view digits = name.substr(2);
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() ||
      std::string_view("biufcVMmSU").find(type.kind) == std::string_view::npos) {
    return type;
  }
  constexpr uint64_t kBytesOfCharacter = 4;
  type.size = type.kind == 'U' ? kBytesOfCharacter * number : number;
  type.is_plain = end == digits.data() + digits.size();
  return type;
}

std::optional<Dtype> DtypeOf(const ArrayType& type, std::string_view torch_name) {
  const bool is_ours = type.order == '<' || (type.order != '>' && type.size == 1);
  if (!is_ours || !type.is_plain) return std::nullopt;
  if (!torch_name.empty()) {
    const std::optional<Dtype> named = DtypeNamed(torch_name);
    const bool fits =
        named && type.kind == 'V' && ItemSize(*named) == type.size && ElementsPerItem(*named) == 1;
    return fits ? named : std::nullopt;
  }
  for (const Row& row : kRows) {
    if (row.kind == type.kind && row.size == type.size) return row.dtype;
  }
  return std::nullopt;
}

}  // namespace

StoredDtype ReadDtype(std::string_view stored) {
  constexpr std::string_view kTorch = "torch.";
  const size_t nul = stored.find('\0');
  std::string_view torch_name;
  if (nul != std::string_view::npos) {
    torch_name = stored.substr(nul + 1);
    if (!torch_name.starts_with(kTorch) || torch_name.size() == kTorch.size() ||
        torch_name.find('\0') != std::string_view::npos) {
      return {.foreign = std::string(stored)};
    }
  }
  const ArrayType type = ReadArrayType(stored.substr(0, nul));
  const std::string_view bare = torch_name.empty() ? torch_name : torch_name.substr(kTorch.size());
  StoredDtype dtype{.size = type.size, .is_object = type.kind == 'O'};
  if (const auto known = DtypeOf(type, bare)) {
    dtype.dtype = *known;
  } else {
    const bool is_new = !bare.empty() && !DtypeNamed(bare);
    dtype.foreign = is_new ? torch_name : stored;
  }
  return dtype;
}

}  // namespace ckptfs::tensorizer
