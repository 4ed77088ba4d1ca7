#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/codec/zip.h"
#include "parser/io/simple_sources.h"
#include "parser/layer/decompressed.h"

namespace {

using ckptfs::zip::Member;

// Reads the bytes of a member as a mount would; inflates only what takes no time.
void Read(const std::shared_ptr<const ckptfs::MemorySource>& source, const Member& member) {
  std::vector<std::byte> bytes(member.compressed_size);
  source->ReadAt(member.data_offset, bytes);
  constexpr uint64_t kMost = 65536;
  if (member.method != ckptfs::zip::Method::kDeflated || member.size > kMost) return;
  bytes.resize(member.size);
  try {
    const ckptfs::Compressed compressed = {
        .coding = ckptfs::Coding::kDeflate,
        .data = {source, member.data_offset, member.compressed_size},
        .size = member.size};
    const auto decoding = std::make_shared<ckptfs::Decoding>(
        std::make_shared<ckptfs::BlockCache>(),
        std::make_shared<ckptfs::ScratchSpace>(uint64_t{1} << 30U));
    ckptfs::MakeDecompressed(compressed, member.crc, decoding)->ReadAt(0, bytes);
  } catch (const ckptfs::Error&) {  // The next member may be sound.
  }
}

}  // namespace

// Any input either parses or throws Error; anything else is a bug. What parses has members that can
// be read, can be found, and do not overlap.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto source = std::make_shared<const ckptfs::MemorySource>(
      std::string(reinterpret_cast<const char*>(data), size));
  try {
    auto budget = ckptfs::Budget::ForFile(size);
    const auto directory = ckptfs::zip::ReadDirectory(*source, budget);
    std::vector<const Member*> members;
    for (const Member& member : directory.members()) {
      if (directory.Find(member.name) != &member) std::abort();
      if (!member.error.empty()) continue;
      Read(source, member);
      members.push_back(&member);
    }
    std::ranges::sort(members, {}, &Member::data_offset);
    const auto overlap = [](const Member* a, const Member* b) {
      return a->data_offset + a->compressed_size > b->data_offset;
    };
    if (std::ranges::adjacent_find(members, overlap) != members.end()) std::abort();
    directory.CheckPaths();
  } catch (const ckptfs::Error&) {
  }
  return 0;
}
