#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "parser/base/json.h"
#include "parser/format/safetensors/dtypes.h"
#include "parser/format/safetensors/header.h"

namespace ckptfs::safetensors {
namespace {

std::string ListOf(const std::vector<uint64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ","));
}

// Makes `tensor` one of bytes, whatever the elements are.
void ShowBytes(const Entry& entry, Tensor& tensor) {
  tensor.shape = {tensor.data.length};
  tensor.annotations.emplace_back("stored_dtype", json::String(entry.dtype));
  tensor.annotations.emplace_back("stored_shape", ListOf(entry.shape));
}

}  // namespace

Tensor TensorOf(const Entry& entry, const Header& header, const ByteSourcePtr& file) {
  const uint64_t offset = header.data_offset + entry.begin;
  const StoredDtype* row = StoredDtypeNamed(entry.dtype);
  Tensor tensor{.dtype = row == nullptr ? Dtype::kOpaque : row->dtype,
                .foreign_dtype = "",
                .shape = entry.shape,
                .data = {file, offset, entry.end - entry.begin},
                .error = "",
                .member = "",
                .file_offset = offset,
                .is_in_file = true,
                .annotations = {}};
  if (tensor.dtype == Dtype::kOpaque) {
    tensor.foreign_dtype = entry.dtype;
    ShowBytes(entry, tensor);
  } else if (tensor.dtype == Dtype::kFloat4E2m1fnX2) {
    // The header counts halves of bytes, PyTorch counts bytes.
    const bool is_whole = !entry.shape.empty() && entry.shape.back() % 2 == 0;
    ShowBytes(entry, tensor);
    if (is_whole) {
      tensor.shape = entry.shape;
      tensor.shape.back() /= 2;
    }
  }
  return tensor;
}

}  // namespace ckptfs::safetensors
