// The decoded stream is divided into blocks of 1 MiB, which the block cache keeps for the next
// reads. The first pass decodes them in order. Any reader may drive it: readers of later blocks
// wait for it, or drive it themselves. For each block it records a hash, and the data to decode the
// block again without those before it:
//
//   deflate       the last access point, and the 32 KiB before it: 3 % of the decoded bytes
//   bzip2, LZMA   the block
//
// both in a scratch file. Without room for it, a block is decoded again from the nearest access
// point before it, or from the beginning of the stream. The decompressor of a block is cached at
// its end, where the reader of the next block continues.
//
// Measured with 256 MiB of weights: caching the decoded bytes themselves doubled the time of the
// first pass, 1.4 s, and took all the disk space that the mount is meant to save; access points had
// no measurable cost, and a block is decoded again in 5 ms.

#include "parser/layer/decompressed.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <condition_variable>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "parser/base/cancellation.h"
#include "parser/base/error.h"
#include "parser/base/mutex.h"
#include "parser/codec/decoder.h"
#include "parser/io/byte_source.h"

namespace ckptfs {
namespace {

constexpr size_t kDecodedBlock = size_t{1} << 20;  // Bytes.

uint32_t CrcOf(std::span<const std::byte> bytes) {
  const auto* const data = reinterpret_cast<const Bytef*>(bytes.data());
  return static_cast<uint32_t>(::crc32_z(0, data, bytes.size()));
}

// An access point whose window is in the scratch file.
struct CachedAccessPoint {
  AccessPoint access_point;
  uint64_t window = 0;  // Offset in the scratch file.
};

class DecompressedSource final : public ByteSource, public PartlyStored {
 public:
  DecompressedSource(const Compressed& compressed, uint32_t crc, std::shared_ptr<Decoding> decoding)
      : compressed_(compressed),
        crc_(crc),
        decoding_(std::move(decoding)),
        blocks_(decoding_->blocks, compressed.size, kDecodedBlock,
                [this](uint64_t index, std::span<std::byte> block) { Make(index, block); }),
        good_(compressed.size),
        verdict_(crc == 0 ? Verdict::kNone : Verdict::kUnread) {}

  DecompressedSource(const DecompressedSource&) = delete;
  DecompressedSource& operator=(const DecompressedSource&) = delete;
  ~DecompressedSource() override {
    blocks_.Leave();
    decoding_->decompressors.Drop(blocks_.owner());
  }

  std::string name() const override { return compressed_.data.source->name(); }
  uint64_t size() const override { return compressed_.size; }
  uint64_t stored_size() const override { return compressed_.data.length; }
  timespec modified() const override { return compressed_.data.source->modified(); }
  Verdict verdict() const override { return verdict_; }
  bool is_remote() const override { return compressed_.data.source->is_remote(); }

  // Decoding reads the stream in its order, whatever is read.
  void AdviseFile(ByteRange /*range*/) const override {
    compressed_.data.source->AdviseFile(
        {.offset = compressed_.data.offset, .length = compressed_.data.length});
  }

  // Encoded data are hardly longer than decoded ones.
  void Prefetch(std::span<const ByteRange> ranges) const override {
    uint64_t end = 0;
    for (const ByteRange& range : ranges) end = std::max(end, range.offset + range.length);
    const ByteRange ahead{.offset = compressed_.data.offset,
                          .length = std::min(end, compressed_.data.length)};
    if (end > 0) compressed_.data.source->Prefetch({&ahead, 1});
  }

  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    assert(offset <= size() && buffer.size() <= size() - offset);
    while (!buffer.empty()) {
      const uint64_t index = offset / kDecodedBlock;
      const size_t skipped = offset % kDecodedBlock;
      const size_t n = std::min<size_t>(buffer.size(), SizeOf(index) - skipped);
      RefuseIfBad(offset + n);
      ReadBlock(index, skipped, buffer.first(n));
      RefuseIfBad(offset + n);
      buffer = buffer.subspan(n);
      offset += n;
    }
  }

 private:
  // A block as the first pass decoded it.
  struct Passed {
    uint32_t crc = 0;
    std::optional<uint64_t> scratch_offset;  // Of the block in the scratch file.
  };

  uint64_t Count() const {
    return compressed_.size / kDecodedBlock + (compressed_.size % kDecodedBlock != 0 ? 1 : 0);
  }

  uint64_t PassedCount() const {
    const MutexLock lock(mutex_);
    return passed_.size();
  }

  size_t SizeOf(uint64_t index) const {
    return std::min<uint64_t>(kDecodedBlock, compressed_.size - index * kDecodedBlock);
  }

  // Throws if a byte before `end` is corrupt.
  void RefuseIfBad(uint64_t end) const {
    if (end > good_) throw Error(EIO, damage_);
  }

  // Reads at `offset` of a block. Bytes after good_ are undefined.
  void ReadBlock(uint64_t index, size_t offset, std::span<std::byte> buffer) const {
    const size_t size = SizeOf(index);
    if (buffer.size() == size) return Make(index, buffer);
    if (blocks_.Read(index, offset, buffer)) return;
    std::vector<std::byte> block(size);
    Make(index, block);
    std::ranges::copy(std::span(block).subspan(offset, buffer.size()), buffer.begin());
  }

  // Decodes a block, up to its first corrupt byte.
  void Make(uint64_t index, std::span<std::byte> block) const {
    if (!MakeFirst(index, block)) MakeAgain(index, block);
  }

  // Decodes a block that the first pass has not reached. Returns false if it has, or ends before.
  bool MakeFirst(uint64_t index, std::span<std::byte> block) const {
    const auto is_over = [&]() REQUIRES(mutex_) {
      return passed_.size() > index || good_ < compressed_.size;
    };
    {
      MutexLock lock(mutex_);
      Cancellation::Wait(lock, changed_,
                         [&]() REQUIRES(mutex_) { return !is_driven_ || is_over(); });
      if (is_over()) return false;
      is_driven_ = true;
    }
    const auto stop = [&] {
      {
        const MutexLock lock(mutex_);
        is_driven_ = false;
      }
      changed_.notify_all();
    };
    try {
      Drive(index, block);
    } catch (...) {
      stop();
      throw;
    }
    stop();
    return true;
  }

  // Drives the first pass to the end of block `index`, or to its end before that. Called by one
  // thread at a time.
  void Drive(uint64_t index, std::span<std::byte> block) const {
    uint64_t next = PassedCount();
    auto decompressor = DecompressorAt(next * kDecodedBlock);
    std::unique_ptr<std::byte[]> other;
    for (; next < index; ++next) {
      if (other == nullptr) other = std::make_unique_for_overwrite<std::byte[]>(kDecodedBlock);
      if (!Pass(*decompressor, next, {other.get(), kDecodedBlock})) return;
      MayStop(decompressor);
    }
    if (Pass(*decompressor, index, block)) KeepDecompressor(std::move(decompressor));
  }

  // Drives the first pass through the next block, `index`. Returns false if it ends there.
  bool Pass(Decompressor& decompressor, uint64_t index, std::span<std::byte> block) const {
    const size_t made = decompressor.Decode(block);
    if (made < block.size()) {
      const uint64_t position = decompressor.position();
      if (!decompressor.damage().empty()) {
        SetDamage(position - std::min(position, decompressor.wrong()), decompressor.damage());
      } else {
        SetDamage(0, decompressor.Message(
                         fmt::format("ends after {} of {} bytes", position, compressed_.size)));
      }
      return false;
    }
    Passed passed{.crc = CrcOf(block)};
    const auto crc = static_cast<uint32_t>(
        ::crc32_combine(crc_so_far_, passed.crc, static_cast<z_off_t>(block.size())));
    const bool is_last = index + 1 == Count();
    if (is_last && !CheckEnd(decompressor, crc)) return false;
    std::optional<CachedAccessPoint> access_point;
    if (compressed_.coding == Coding::kDeflate) {
      if (!is_last) access_point = KeepAccessPoint(decompressor, index, block);
    } else if (Count() > 1) {
      passed.scratch_offset = decoding_->scratch.Write(block);
    }
    {
      const MutexLock lock(mutex_);
      if (access_point) access_points_.push_back(*access_point);
      passed_.push_back(passed);
    }
    crc_so_far_ = crc;
    if (is_last && crc_ != 0) verdict_ = Verdict::kRight;
    changed_.notify_all();
    return true;
  }

  // Checks the end of the stream. Returns false if it is invalid.
  bool CheckEnd(Decompressor& decompressor, uint32_t crc) const {
    std::string damage = decompressor.CheckEnd();
    if (damage.empty() && crc_ != 0 && crc != crc_) {
      damage = decompressor.Message(
          fmt::format("CRC-32 mismatch (found {:#010x}, expected {:#010x})", crc, crc_));
    }
    if (damage.empty()) return true;
    SetDamage(0, std::move(damage));
    return false;
  }

  // Records the error after the first `good` bytes.
  void SetDamage(uint64_t good, std::string damage) const {
    if (crc_ != 0) verdict_ = Verdict::kWrong;
    const MutexLock lock(mutex_);
    damage_ = std::move(damage);
    good_ = good;
  }

  std::optional<CachedAccessPoint> KeepAccessPoint(const Decompressor& decompressor, uint64_t index,
                                                   std::span<const std::byte> block) const {
    const auto& access_point = decompressor.access_point();
    if (!access_point) return std::nullopt;
    const size_t end = access_point->position - index * kDecodedBlock;
    const auto window =
        decoding_->scratch.Write(block.subspan(end - kDeflateWindow, kDeflateWindow));
    if (!window) return std::nullopt;
    return CachedAccessPoint{.access_point = *access_point, .window = *window};
  }

  // Decodes a block again.
  void MakeAgain(uint64_t index, std::span<std::byte> block) const {
    const uint64_t begin = index * kDecodedBlock;
    std::optional<Passed> passed;  // Not of a block where the stream is corrupt.
    {
      const MutexLock lock(mutex_);
      if (begin >= good_) return;  // Another reader has found the corruption meanwhile.
      if (index < passed_.size()) passed = passed_[index];
    }
    if (passed && passed->scratch_offset) {
      decoding_->scratch.Read(*passed->scratch_offset, block);
    } else {
      auto decompressor = DecompressorAt(begin);
      const size_t made = decompressor->Decode(block);
      const uint64_t wanted = passed ? block.size() : good_ - begin;
      if (made < wanted) Changed(begin);
      if (passed && index + 1 < Count()) KeepDecompressor(std::move(decompressor));
    }
    if (passed && CrcOf(block) != passed->crc) Changed(begin);
  }

  [[noreturn]] void Changed(uint64_t begin) const {
    Fail(EIO, "{} stream at byte {}: bytes from {} on differ from an earlier decompression",
         NameOf(compressed_.coding), compressed_.data.offset, begin);
  }

  // Returns a decompressor at `position`, which the first pass has reached.
  DecompressorPool::Working DecompressorAt(uint64_t position) const {
    std::optional<CachedAccessPoint> access_point;
    {
      const MutexLock lock(mutex_);
      const auto after = std::ranges::upper_bound(
          access_points_, position, {},
          [](const CachedAccessPoint& e) { return e.access_point.position; });
      if (after != access_points_.begin()) access_point = after[-1];
    }
    DecompressorPool& decompressors = decoding_->decompressors;
    auto decompressor = decompressors.Take(
        blocks_.owner(), access_point ? access_point->access_point.position : 0, position);
    if (decompressor == nullptr) decompressor = decompressors.Start(Begin(access_point));
    while (decompressor->position() < position) {
      const uint64_t left = position - decompressor->position();
      if (!decompressor->Skip(std::min<uint64_t>(kDecodedBlock, left))) Changed(position);
      MayStop(decompressor);
    }
    return decompressor;
  }

  // Throws as Cancellation::CheckPreempted does, after it has cached the decompressor.
  void MayStop(DecompressorPool::Working& decompressor) const {
    try {
      Cancellation::CheckPreempted();
    } catch (...) {
      KeepDecompressor(std::move(decompressor));
      throw;
    }
  }

  std::unique_ptr<Decompressor> Begin(const std::optional<CachedAccessPoint>& access_point) const {
    if (!access_point) return std::make_unique<Decompressor>(compressed_);
    std::vector<std::byte> window(kDeflateWindow);
    decoding_->scratch.Read(access_point->window, window);
    return std::make_unique<Decompressor>(compressed_, access_point->access_point, window);
  }

  void KeepDecompressor(DecompressorPool::Working decompressor) const {
    if (decompressor->position() < compressed_.size)
      decoding_->decompressors.Keep(blocks_.owner(), std::move(decompressor));
  }

  const Compressed compressed_;
  const uint32_t crc_;
  const std::shared_ptr<Decoding> decoding_;
  SequentialBlocks blocks_;

  mutable uint32_t crc_so_far_ = 0;  // Only for the driver of the first pass.

  // The number of bytes known to be valid, and the error after them. Changes once.
  mutable std::string damage_;
  mutable std::atomic<uint64_t> good_;
  mutable std::atomic<Verdict> verdict_;

  mutable Mutex mutex_;  // Nothing is decoded or read under it.
  mutable std::condition_variable changed_;
  mutable bool is_driven_ GUARDED_BY(mutex_) = false;      // A thread drives the first pass.
  mutable std::vector<Passed> passed_ GUARDED_BY(mutex_);  // By block.
  mutable std::vector<CachedAccessPoint> access_points_ GUARDED_BY(mutex_);  // By position.
};

}  // namespace

ByteSourcePtr MakeDecompressed(const Compressed& compressed, uint32_t crc,
                               std::shared_ptr<Decoding> decoding) {
  return std::make_shared<DecompressedSource>(compressed, crc, std::move(decoding));
}

}  // namespace ckptfs
