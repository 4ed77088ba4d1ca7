#include "tools/ckpt/commands.h"

#include <cerrno>
#include <cstddef>
#include <span>

#include "parser/base/error.h"
#include "parser/view/view.h"
#include "tools/ckpt/entries.h"
#include "tools/ckpt/output.h"
#include "tools/ckpt/slice.h"

namespace ckptfs::ckpt {
namespace {

void Write(const Extent& data) {
  ReadInOrder(data, [](std::span<const std::byte> piece) {
    Print({reinterpret_cast<const char*>(piece.data()), piece.size()});
  });
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
