#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "parser/checkpoint.h"
#include "parser/error.h"
#include "parser/layer/memory.h"
#include "parser/open.h"

namespace {

using ckptfs::Group;
using ckptfs::Tensor;

// Reads the beginning and the end of each tensor.
void ReadTensors(const Group& group) {
  constexpr uint64_t kMost = 4096;
  for (const ckptfs::Member& member : group.members) {
    if (const auto* child = std::get_if<std::unique_ptr<Group>>(&member.content)) {
      ReadTensors(**child);
    } else if (const auto* tensor = std::get_if<Tensor>(&member.content)) {
      if (!tensor->error.empty()) continue;
      const ckptfs::Extent& data = tensor->data;
      std::vector<std::byte> buffer(std::min(kMost, data.length));
      if (buffer.empty()) continue;
      data.source->ReadAt(data.offset, buffer);
      data.source->ReadAt(data.offset + data.length - buffer.size(), buffer);
    }
  }
}

}  // namespace

// Any archive either is a checkpoint whose every tensor can be read or fails, or throws Error;
// anything else is a bug.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const ckptfs::Checkpoint checkpoint =
        ckptfs::ReadCheckpoint(std::make_shared<ckptfs::MemorySource>(
            std::string(reinterpret_cast<const char*>(data), size)));
    ReadTensors(checkpoint.root);
  } catch (const ckptfs::Error&) {
  }
  return 0;
}
