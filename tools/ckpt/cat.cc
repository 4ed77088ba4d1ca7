#include "tools/ckpt/cat.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/view.h"
#include "tools/ckpt/entries.h"
#include "tools/ckpt/output.h"
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

Tensor Selected(const Model& model, const std::string& key) {
  const std::vector<Entry> entries = EntriesOf(model.checkpoint());
  const std::vector<TensorEntry> tensors = TensorsOf(entries);
  const Tensor* const whole = Find(model, tensors, key);
  const SlicedKey sliced = SplitSlice(key);
  const Tensor* const tensor =
      whole != nullptr || !sliced.has_slice ? whole : Find(model, tensors, sliced.key);
  if (tensor == nullptr) {
    Fail(ENOENT, "{}: has no tensor {}", model.name(), Quoted(sliced.key));
  }
  if (tensor->error) throw WithContext(Quoted(sliced.key), *tensor->error);
  return whole != nullptr ? *tensor : Sliced(*tensor, sliced.slice);
}

void Write(const Extent& data) {
  constexpr uint64_t kChunk = uint64_t{1} << 20U;
  std::vector<std::byte> buffer(std::min(kChunk, data.length));
  for (uint64_t done = 0; done < data.length;) {
    const std::span chunk = std::span(buffer).first(std::min(kChunk, data.length - done));
    data.source->ReadAt(data.offset + done, chunk);
    Print({reinterpret_cast<const char*>(chunk.data()), chunk.size()});
    done += chunk.size();
  }
}

}  // namespace

void Dump(const Model& model, const std::string& key, bool as_npy) {
  const Tensor tensor = Selected(model, key);
  if (!as_npy) return Write(tensor.data);
  const ByteSourcePtr file = MakeNpyView(tensor);
  if (file == nullptr) Fail(ENOTSUP, "{}: NumPy has no dtype {}", Quoted(key), DtypeNameOf(tensor));
  Write({file, 0, file->size()});
}

}  // namespace ckptfs::ckpt
