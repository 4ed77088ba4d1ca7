#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "parser/base/error.h"
#include "parser/io/simple_sources.h"
#include "parser/layer/decompressed.h"

namespace {

constexpr size_t kHead = 4;  // Bytes before the stream.

// Reads `length` bytes at `offset`; returns none if the read fails.
std::vector<std::byte> Read(const ckptfs::ByteSource& source, uint64_t offset, uint64_t length) {
  std::vector<std::byte> bytes(length);
  try {
    source.ReadAt(offset, bytes);
  } catch (const ckptfs::Error&) {
    bytes.clear();
  }
  return bytes;
}

}  // namespace

// The oracle: a stream is decoded, or throws Error, and random reads return the bytes of sequential
// ones. The first byte selects the coding, the next ones the size and an offset.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < kHead) return 0;
  constexpr ckptfs::Coding kCodings[] = {ckptfs::Coding::kDeflate, ckptfs::Coding::kBzip2,
                                         ckptfs::Coding::kLzma};
  const uint64_t claimed = 1 + uint64_t{data[1]} * data[1] * 50;  // 3 MiB at most.
  const uint64_t offset = claimed * data[2] / 256;
  const uint64_t length = std::min<uint64_t>(claimed - offset, 1 + data[3] * uint64_t{1000});
  const auto source = std::make_shared<const ckptfs::MemorySource>(
      std::string(reinterpret_cast<const char*>(data) + kHead, size - kHead));
  const auto decoding = std::make_shared<ckptfs::Decoding>(
      std::make_shared<ckptfs::BlockCache>(),
      std::make_shared<ckptfs::ScratchSpace>(uint64_t{1} << 30U));
  const ckptfs::Compressed compressed = {
      .coding = kCodings[data[0] % 3], .data = {source, 0, source->size()}, .size = claimed};
  const auto decoded = ckptfs::MakeDecompressed(compressed, 0, decoding);
  const auto first = Read(*decoded, offset, length);
  const auto again = Read(*decoded, offset, length);
  // Returned bytes may fail later, but never differ.
  if (first.empty() ? !again.empty() : !again.empty() && first != again) std::abort();
  const auto in_order = Read(*ckptfs::MakeDecompressed(compressed, 0, decoding), 0, claimed);
  if (!in_order.empty() && !std::equal(first.begin(), first.end(),
                                       in_order.begin() + static_cast<std::ptrdiff_t>(offset))) {
    std::abort();
  }
  if (!in_order.empty() && first.empty()) std::abort();
  return 0;
}
