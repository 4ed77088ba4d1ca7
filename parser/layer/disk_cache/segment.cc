#include "parser/layer/disk_cache/segment.h"

#include <sys/uio.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cerrno>
#include <ctime>
#include <type_traits>
#include <vector>

namespace ckptfs {
namespace {

constexpr uint64_t kIndexBegin = 4096;
constexpr uint64_t kBlocksBegin = 8192;
static_assert(kIndexBegin + kSegmentBlocks * sizeof(uint64_t) <= kBlocksBegin);

// The number of blocks per system call: few enough to be in the processor's cache when their
// checksums are computed, and fewer than IOV_MAX.
constexpr size_t kBatch = 16;

// Files of another version are removed when they are found.
constexpr uint32_t kVersion = 2;

struct Header {
  std::array<char, 8> magic = {'c', 'k', 'p', 't', 'f', 's', '\r', '\n'};
  uint32_t version = kVersion;
  uint32_t block_size = kBlockSize;
  std::array<std::byte, 32> object = {};
  uint64_t object_size = 0;
  uint64_t number = 0;
};
static_assert(sizeof(Header) == 64 && std::is_trivially_copyable_v<Header>);

using HeaderBytes = std::array<std::byte, sizeof(Header)>;

HeaderBytes HeaderOf(const SegmentId& id) {
  Header header;
  header.object = id.object;
  header.object_size = id.object_size;
  header.number = id.number;
  return std::bit_cast<HeaderBytes>(header);
}

// Not 0.
uint64_t Checksum(const SegmentId& id, uint64_t block, std::span<const std::byte> bytes) {
  const uint64_t seed = ::XXH3_64bits_withSeed(id.object.data(), id.object.size(), block);
  return std::max<uint64_t>(1, ::XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed));
}

uint64_t Offset(uint64_t block) { return kBlocksBegin + block % kSegmentBlocks * kBlockSize; }

uint64_t IndexOffset(uint64_t block) {
  return kIndexBegin + block % kSegmentBlocks * sizeof(uint64_t);
}

}  // namespace

bool Segment::CheckOrInitialize() const {
  const HeaderBytes wanted = HeaderOf(id_);
  HeaderBytes found = {};
  ReadFully(file_.number(), 0, found);
  if (found == wanted) return true;
  // Several processes may do this at once; they write the same bytes.
  return found == HeaderBytes{} && may_write_ && !WriteFully(file_.number(), 0, wanted);
}

void Segment::Read(uint64_t first, std::span<const std::span<std::byte>> blocks,
                   std::span<uint8_t> is_cached) const {
  assert(first % kSegmentBlocks + blocks.size() <= kSegmentBlocks);
  std::ranges::fill(is_cached, 0);
  std::vector<uint64_t> sums(blocks.size());
  ReadFully(file_.number(), IndexOffset(first), std::as_writable_bytes(std::span(sums)));
  for (size_t begin = 0; begin < blocks.size();) {
    if (sums[begin] == 0) {
      ++begin;
      continue;
    }
    std::array<iovec, kBatch> vectors = {};
    size_t count = 0;
    for (; count < kBatch && begin + count < blocks.size() && sums[begin + count] != 0; ++count) {
      const auto block = blocks[begin + count];
      vectors.at(count) = {.iov_base = block.data(), .iov_len = block.size()};
    }
    ssize_t n = 0;
    do {
      n = ::preadv(file_.number(), vectors.data(), static_cast<int>(count),
                   static_cast<off_t>(Offset(first + begin)));
    } while (n < 0 && errno == EINTR);
    size_t arrived = n < 0 ? 0 : static_cast<size_t>(n);
    for (size_t i = begin; i < begin + count && arrived >= blocks[i].size(); ++i) {
      arrived -= blocks[i].size();
      is_cached[i] = Checksum(id_, first + i, blocks[i]) == sums[i] ? 1 : 0;
    }
    begin += count;
  }
}

std::optional<Error> Segment::Write(uint64_t first,
                                    std::span<const std::span<const std::byte>> blocks) const {
  assert(first % kSegmentBlocks + blocks.size() <= kSegmentBlocks);
  std::vector<uint64_t> sums(blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    sums[i] = Checksum(id_, first + i, blocks[i]);
    if (auto error = WriteFully(file_.number(), Offset(first + i), blocks[i])) return error;
  }
  return WriteFully(file_.number(), IndexOffset(first), std::as_bytes(std::span(sums)));
}

bool Segment::Touch() const {
  constexpr time_t kLately = 60;  // Seconds.
  struct stat status = {};
  if (::fstat(file_.number(), &status) != 0 || status.st_nlink == 0) return false;
  // Without write permission this fails, unless the user owns the file.
  if (::time(nullptr) - status.st_mtim.tv_sec > kLately) ::futimens(file_.number(), nullptr);
  return true;
}

}  // namespace ckptfs
