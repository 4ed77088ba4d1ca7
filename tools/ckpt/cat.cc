#include "tools/ckpt/commands.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/view/view.h"
#include "tools/ckpt/entries.h"
#include "tools/ckpt/output.h"
#include "tools/ckpt/slice.h"

namespace ckptfs::ckpt {
namespace {

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
  const Tensor tensor = SelectedTensor(model, key, Elements::kStored);
  if (!as_npy) return Write(tensor.data);
  const ByteSourcePtr file = MakeNpyView(tensor);
  if (file == nullptr) Fail(ENOTSUP, "{}: NumPy has no dtype {}", Quoted(key), DtypeNameOf(tensor));
  Write({file, 0, file->size()});
}

}  // namespace ckptfs::ckpt
