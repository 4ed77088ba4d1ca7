#include <cstdint>
#include <memory>
#include <string>

#include "parser/base/error.h"
#include "parser/checkpoint.h"
#include "parser/io/simple_sources.h"
#include "parser/open.h"
#include "tests/support/reading.h"

// The oracle: an archive is a checkpoint whose tensors can be read or fail, or throws Error.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const ckptfs::Checkpoint checkpoint =
        ckptfs::ReadCheckpoint(std::make_shared<ckptfs::MemorySource>(
            std::string(reinterpret_cast<const char*>(data), size)));
    ckptfs::ReadTensors(checkpoint.root);
  } catch (const ckptfs::Error&) {
  }
  return 0;
}
