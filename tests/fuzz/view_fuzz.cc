#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/checkpoint.h"
#include "parser/io/simple_sources.h"
#include "parser/layer/joined.h"
#include "parser/open.h"
#include "parser/view/view.h"
#include "tests/fuzz/require.h"

namespace ckptfs {
namespace {

// The header of the view, and zeros for the tensors, which may be unreadable.
ByteSourcePtr WithoutData(const ByteSourcePtr& view) {
  std::array<std::byte, sizeof(uint64_t)> bytes = {};
  view->ReadAt(0, bytes);
  uint64_t length = 0;
  for (size_t i = 0; i < bytes.size(); ++i) length |= std::to_integer<uint64_t>(bytes[i]) << 8 * i;
  const uint64_t begin = bytes.size() + length;
  const uint64_t rest = view->size() - begin;
  return MakeJoined("view", {{view, 0, begin}, {std::make_shared<Zeros>(rest), 0, rest}});
}

void CheckView(const uint8_t* data, size_t size) {
  const auto source =
      std::make_shared<MemorySource>(std::string(reinterpret_cast<const char*>(data), size));
  SafetensorsView view;
  try {
    Budget budget = Budget::ForFile(size);
    const Checkpoint checkpoint = ReadCheckpoint(source);
    view = MakeSafetensorsView(checkpoint, budget);
  } catch (const Error&) {
    return;
  }
  if (view.file == nullptr) return;
  try {
    Require(ReadCheckpoint(WithoutData(view.file)).format == "safetensors");
  } catch (const Error& e) {
    Require(e.code() == EFBIG);
  }
}

}  // namespace
}  // namespace ckptfs

// The oracle: the view of any checkpoint is a safetensors file by the rules of the reference, which
// the parser checks.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ckptfs::CheckView(data, size);
  return 0;
}
