#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "parser/base/fd.h"
#include "parser/layer/disk_cache/segment.h"

using ckptfs::kBlockSize;

namespace {

// The offsets of the parts of a segment. The input has the parts without the gaps between them: a
// header, an index of kBlocks checksums, and bytes of the blocks.
constexpr size_t kHeader = 64;
constexpr size_t kIndexBegin = 4096;
constexpr size_t kBlocksBegin = 32768;
constexpr uint64_t kBlocks = 3;

// Writes at most `room` of `bytes` at `offset`; returns the rest.
std::span<const uint8_t> Place(int file, size_t offset, size_t room,
                               std::span<const uint8_t> bytes) {
  const auto part = bytes.first(std::min(room, bytes.size()));
  if (::pwrite(file, part.data(), part.size(), static_cast<off_t>(offset)) < 0) std::abort();
  return bytes.subspan(part.size());
}

}  // namespace

// The oracle: only valid blocks are cached; a written block is cached afterwards, and changes no
// other block.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int file = ::memfd_create("segment", MFD_CLOEXEC);
  if (file < 0) std::abort();
  std::span<const uint8_t> rest(data, size);
  rest = Place(file, 0, kHeader, rest);
  rest = Place(file, kIndexBegin, kBlocks * sizeof(uint64_t), rest);
  Place(file, kBlocksBegin, kBlocks * kBlockSize, rest);

  const ckptfs::SegmentId id = {.object_size = (kBlocks - 1) * kBlockSize + 5};
  const ckptfs::Segment segment(ckptfs::Fd(file), id, true);
  segment.CheckOrInitialize();
  std::vector<std::vector<std::byte>> bytes;
  for (uint64_t i = 0; i < kBlocks; ++i) bytes.emplace_back(ckptfs::BlockLength(id.object_size, i));
  std::vector<std::span<std::byte>> blocks(bytes.begin(), bytes.end());
  std::vector<uint8_t> is_cached(kBlocks);
  segment.Read(0, blocks, is_cached);
  for (size_t i = 0; i < kBlocks; ++i) {
    std::vector<std::byte> found(blocks[i].size());
    if (is_cached[i] == 0) continue;
    const auto offset = static_cast<off_t>(kBlocksBegin + i * kBlockSize);
    const ssize_t n = ::pread(file, found.data(), found.size(), offset);
    if (n != static_cast<ssize_t>(found.size()) || found != bytes[i]) std::abort();
  }

  const std::vector<std::byte> written(kBlockSize, std::byte{1});
  const std::vector<std::span<const std::byte>> run = {written};
  const auto before = is_cached;
  if (segment.Write(1, run)) std::abort();
  segment.Read(0, blocks, is_cached);
  if (is_cached[0] < before[0] || is_cached[1] == 0 || is_cached[2] < before[2]) std::abort();
  return bytes[1] == written ? 0 : (std::abort(), 0);
}
