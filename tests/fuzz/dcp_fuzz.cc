#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "parser/base/error.h"
#include "parser/checkpoint.h"
#include "parser/detect.h"
#include "tests/support/memory_folder.h"
#include "tests/support/reading.h"

// The oracle: metadata and a file are a distributed checkpoint whose tensors can be read or fail,
// or throw Error. The input begins with the length of the metadata, in 4 bytes.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uint32_t length = 0;
  if (size < sizeof length) return 0;
  std::memcpy(&length, data, sizeof length);
  const std::string text(reinterpret_cast<const char*>(data) + sizeof length, size - sizeof length);
  const size_t split = std::min<size_t>(length, text.size());
  try {
    const ckptfs::Checkpoint checkpoint = ckptfs::ReadCheckpoint(ckptfs::FolderOf(
        {{".metadata", text.substr(0, split)}, {"__0_0.distcp", text.substr(split)}}));
    ckptfs::ReadTensors(checkpoint.root);
  } catch (const ckptfs::Error&) {
  }
  return 0;
}
