#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/checkpoint.h"
#include "parser/io/simple_sources.h"
#include "parser/layer/joined.h"
#include "parser/open.h"
#include "parser/view/view.h"

namespace {

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "view: %s\n", what);
  std::abort();
}

// The header of the view, and zeros for the tensors, which may be unreadable.
ckptfs::ByteSourcePtr WithoutData(const ckptfs::ByteSourcePtr& view) {
  std::array<std::byte, sizeof(uint64_t)> bytes = {};
  view->ReadAt(0, bytes);
  uint64_t length = 0;
  for (size_t i = 0; i < bytes.size(); ++i) length |= std::to_integer<uint64_t>(bytes[i]) << 8 * i;
  const uint64_t begin = bytes.size() + length;
  const uint64_t rest = view->size() - begin;
  return ckptfs::MakeJoined("view",
                            {{view, 0, begin}, {std::make_shared<ckptfs::Zeros>(rest), 0, rest}});
}

}  // namespace

// The oracle: the view of any checkpoint is a safetensors file by the rules of the reference, which
// the parser checks.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ckptfs;
  const auto source =
      std::make_shared<MemorySource>(std::string(reinterpret_cast<const char*>(data), size));
  SafetensorsView view;
  try {
    Budget budget = Budget::ForFile(size);
    const Checkpoint checkpoint = ReadCheckpoint(source);
    view = MakeSafetensorsView(checkpoint, budget);
  } catch (const Error&) {
    return 0;
  }
  if (view.file == nullptr) return 0;
  try {
    Require(ReadCheckpoint(WithoutData(view.file)).format == "safetensors", "is another format");
  } catch (const Error& e) {
    Require(e.code() == EFBIG, e.what());
  }
  return 0;
}
