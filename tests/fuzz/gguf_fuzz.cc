#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "parser/base/error.h"
#include "parser/checkpoint.h"
#include "parser/detect.h"
#include "parser/io/simple_sources.h"
#include "tests/support/memory_folder.h"
#include "tests/support/reading.h"

// The oracle: a file is a model whose tensors can be read or fail, by itself and as a part, or
// throws Error.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string file(reinterpret_cast<const char*>(data), size);
  try {
    ckptfs::ReadTensors(ckptfs::ReadCheckpoint(std::make_shared<ckptfs::MemorySource>(file)).root);
  } catch (const ckptfs::Error&) {
  }
  try {
    ckptfs::ReadTensors(
        ckptfs::Read({{"m-00001-of-00002.gguf", file}, {"m-00002-of-00002.gguf", file}}).root);
  } catch (const ckptfs::Error&) {
  }
  return 0;
}
