#include <cstdint>
#include <memory>
#include <string>

#include "parser/base/error.h"
#include "parser/checkpoint.h"
#include "parser/io/simple_sources.h"
#include "parser/open.h"
#include "tests/support/reading.h"

// Any archive either is a checkpoint whose every tensor can be read or fails, or throws Error;
// anything else is a bug.
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
