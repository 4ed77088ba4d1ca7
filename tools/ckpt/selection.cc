#include "tools/ckpt/selection.h"

#include <algorithm>
#include <cerrno>
#include <span>
#include <string_view>
#include <vector>

#include "parser/base/error.h"
#include "tools/ckpt/dequantize.h"
#include "tools/ckpt/entries.h"
#include "tools/ckpt/slice.h"

namespace ckptfs::ckpt {
namespace {

// Returns the tensor with that key; null if there is none. Throws Error(EINVAL) if there are several.
const Tensor* Find(const Model& model, std::span<const TensorEntry> tensors, std::string_view key) {
  const auto found = std::ranges::find(tensors, key, &TensorEntry::key);
  if (found == tensors.end()) return nullptr;
  if (std::ranges::find(found + 1, tensors.end(), key, &TensorEntry::key) != tensors.end()) {
    Fail(EINVAL, "{}: has several tensors {}", model.name(), Quoted(key));
  }
  return found->tensor;
}

}  // namespace

Tensor SelectedTensor(const Model& model, const std::string& key, Elements elements) {
  const std::vector<Entry> entries = EntriesOf(model.checkpoint());
  const std::vector<TensorEntry> tensors = TensorsOf(entries);
  const Tensor* const whole = Find(model, tensors, key);
  const SlicedKey sliced = SplitSlice(key);
  const Tensor* const tensor =
      whole != nullptr || !sliced.has_slice ? whole : Find(model, tensors, sliced.key);
  if (tensor == nullptr) {
    Fail(ENOENT, "{}: has no tensor {}", model.name(), Quoted(sliced.key));
  }
  CheckReadable(*tensor, sliced.key);
  const Tensor result = elements == Elements::kNumbers ? Dequantized(*tensor) : *tensor;
  return whole != nullptr ? result : Sliced(result, sliced.slice);
}

}  // namespace ckptfs::ckpt
