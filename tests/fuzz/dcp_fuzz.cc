#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "parser/checkpoint.h"
#include "parser/detect.h"
#include "parser/error.h"
#include "parser/folder.h"
#include "parser/layer/memory.h"
#include "tests/support/reading.h"

namespace {

using ckptfs::ByteSourcePtr;
using ckptfs::MemorySource;

// A folder whose every file is the same one, but for the metadata.
class TwoFiles final : public ckptfs::Folder {
 public:
  TwoFiles(std::string metadata, std::string file)
      : metadata_(std::make_shared<MemorySource>(std::move(metadata))),
        file_(std::make_shared<MemorySource>(std::move(file))) {}

  std::string name() const override { return "folder"; }
  std::vector<std::string> List() const override { return {".metadata", "__0_0.distcp"}; }
  ByteSourcePtr Open(const std::string& name) const override {
    return name == ".metadata" ? metadata_ : file_;
  }

 private:
  const ByteSourcePtr metadata_;
  const ByteSourcePtr file_;
};

}  // namespace

// Any metadata and any file are a distributed checkpoint whose every tensor can be read or fails,
// or throw Error; anything else is a bug. The input begins with the length of the metadata, in 4
// bytes.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uint32_t length = 0;
  if (size < sizeof length) return 0;
  std::memcpy(&length, data, sizeof length);
  const std::string text(reinterpret_cast<const char*>(data) + sizeof length, size - sizeof length);
  const size_t split = std::min<size_t>(length, text.size());
  try {
    const ckptfs::Checkpoint checkpoint = ckptfs::ReadCheckpoint(ckptfs::Source{
        .file = nullptr,
        .folder = std::make_shared<TwoFiles>(text.substr(0, split), text.substr(split)),
        .file_name = ""});
    ckptfs::ReadTensors(checkpoint.root);
  } catch (const ckptfs::Error&) {
  }
  return 0;
}
