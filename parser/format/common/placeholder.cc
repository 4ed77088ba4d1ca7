#include "parser/format/common/placeholder.h"

#include <fmt/format.h>

#include "parser/base/json.h"

namespace ckptfs {

Content MakePlaceholder(Tensor tensor, const Error& error) {
  const bool has_size = [&] {
    try {
      return tensor.data.length == ByteSize(tensor.dtype, tensor.shape);
    } catch (const Error&) {
      return false;
    }
  }();
  if (has_size && tensor.data.length <= kMaxPlaceholderSize) {
    tensor.data = {.source = nullptr, .offset = 0, .length = tensor.data.length};
    tensor.error = error;
    tensor.is_in_file = false;
    return tensor;
  }
  return Value{
      .json = fmt::format(R"({{"class":"torch.Tensor","error":{}}})", json::String(error.what())),
      .python_type = "tensor",
      .error = error,
      .annotations = {}};
}

void WarnOfUnreadable(std::string_view name, const Error& error, Budget& budget,
                      Checkpoint& checkpoint) {
  constexpr uint64_t kCopies = 4;  // Of the message in JSON, including meta.json.
  checkpoint.warnings.push_back(
      fmt::format("tensor {}: {}: reading it will fail", Quoted(name), error.what()));
  budget.Charge(checkpoint.warnings.back().size() + kCopies * json::String(error.what()).size());
}

}  // namespace ckptfs
