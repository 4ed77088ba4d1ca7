// Element types of tensors.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace ckptfs {

// All element types of PyTorch that have bytes of their own. kOpaque stands for a type that is
// newer than this program or that PyTorch does not have: its shape counts bytes.
enum class Dtype : uint8_t {
  kOpaque,
  kBool,
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kUint64,
  kInt64,
  kFloat16,
  kBfloat16,
  kFloat32,
  kFloat64,
  kComplex32,
  kComplex64,
  kComplex128,
  kFloat8E4m3fn,
  kFloat8E5m2,
  kFloat8E4m3fnuz,
  kFloat8E5m2fnuz,
  kFloat8E8m0fnu,
  kFloat4E2m1fnX2,  // Two values in a byte; shapes count bytes.
  kQint8,
  kQuint8,
  kQint32,
  kQuint4x2,  // Two values in a byte; shapes count values, and rows are padded to bytes.
  kQuint2x4,  // Four values in a byte; likewise.
  kBits8,
  kBits16,
  kBits1x8,
  kBits2x4,
  kBits4x2,
};

// The limit of PyTorch and NumPy.
constexpr size_t kMaxDimensions = 64;

// Bytes of one element; of kQuint4x2 and kQuint2x4 the bytes of one packed group.
unsigned ItemSize(Dtype dtype);

// Elements in ItemSize bytes: 1, but 2 for kQuint4x2 and 4 for kQuint2x4.
unsigned ElementsPerItem(Dtype dtype);

// The unit of byte swapping in bytes: half an element for complex numbers, else ItemSize.
unsigned SwapSize(Dtype dtype);

// PyTorch's name, without the module: "float32".
std::string_view Name(Dtype dtype);

// Returns the type with that name, aliases included ("half", "chalf"); nothing if it is unknown.
std::optional<Dtype> DtypeNamed(std::string_view name);

// Bytes that a dense tensor needs. Throws Error(EOVERFLOW) if they do not fit in 63 bits.
uint64_t ByteSize(Dtype dtype, const std::vector<uint64_t>& shape);

}  // namespace ckptfs
