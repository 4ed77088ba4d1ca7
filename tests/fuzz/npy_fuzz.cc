#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/checkpoint.h"
#include "parser/codec/json_reader.h"
#include "parser/codec/npy.h"
#include "parser/format/numpy/array.h"
#include "parser/io/simple_sources.h"
#include "tests/support/reading.h"

namespace {

bool IsJson(const std::string& text) try {
  auto budget = ckptfs::Budget::ForFile(text.size());
  ckptfs::json::Visitor visitor;
  ckptfs::json::Read(ckptfs::MemorySource(text), 0, text.size(), budget, visitor);
  return true;
} catch (const ckptfs::Error&) {
  return false;
}

}  // namespace

// The oracle: an input is an array whose type is written as JSON and whose elements can be read, or
// throws Error.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = std::make_shared<const ckptfs::MemorySource>(
      std::string(reinterpret_cast<const char*>(data), size));
  try {
    auto budget = ckptfs::Budget::ForFile(size);
    auto header = ckptfs::npy::ReadHeader(*file, 0, size, budget);
    if (header.data_offset > size) std::abort();
    if (!IsJson(header.descr)) std::abort();
    const ckptfs::Record saved{.data = {file, 0, size}, .member = "", .is_in_file = true};
    ckptfs::Tensor tensor;
    ckptfs::numpy::FillSaved(std::move(header), saved, std::make_shared<ckptfs::BlockCache>(),
                             tensor);
    ckptfs::Checkpoint checkpoint;
    checkpoint.root.members.push_back({{"tensor"}, std::move(tensor)});
    ckptfs::Validate(checkpoint);
    ckptfs::ReadTensors(checkpoint.root);
  } catch (const ckptfs::Error&) {
  }
  return 0;
}
