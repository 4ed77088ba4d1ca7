#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "parser/base/error.h"
#include "parser/checkpoint.h"
#include "parser/format/safetensors/header.h"
#include "parser/io/simple_sources.h"

// The oracle: an input is a file whose tensors are valid and tile its data, or throws Error.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = std::make_shared<const ckptfs::MemorySource>(
      std::string(reinterpret_cast<const char*>(data), size));
  try {
    auto budget = ckptfs::Budget::ForFile(size);
    const auto header = ckptfs::safetensors::ReadHeader(*file, budget);
    uint64_t length = 0;
    ckptfs::Checkpoint checkpoint;
    for (const auto& entry : header.entries) {
      length += entry.end - entry.begin;
      checkpoint.root.members.push_back(
          {{entry.name}, ckptfs::safetensors::TensorOf(entry, header, file)});
    }
    if (header.data_offset + length != size) std::abort();
    ckptfs::Validate(checkpoint);
  } catch (const ckptfs::Error&) {
  }
  return 0;
}
