// A hash takes bytes in their order, but the kernel reads ahead with several requests at once,
// which are answered by several threads, so they come a little out of order; and who wants two
// parts of a tensor may want the second one first. So of what comes early only the place is
// remembered, and when the gap before it closes it is read again, from where it lies near by now:
// the page cache, or a cache of ours. To keep the bytes instead would take as long, and memory
// without a bound.
//
// One thread at a time reads again. The others do not wait for it: as long as it is at it, all they
// read is early, and it goes on until nothing is left that follows what it has hashed.

#include "parser/layer/verified.h"

#include <fmt/format.h>
#include <sodium/crypto_hash_sha256.h>
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "parser/base/cancellation.h"
#include "parser/base/error.h"
#include "parser/base/hex.h"

namespace ckptfs {
namespace {

using Sha256 = std::array<std::byte, 32>;
static_assert(sizeof(Sha256) == crypto_hash_sha256_BYTES);

// Computes those hashes that were saved.
class Hasher {
 public:
  explicit Hasher(const Hashes& saved) : saved_(saved) { ::crypto_hash_sha256_init(&sha256_); }

  void Add(std::span<const std::byte> bytes) {
    const auto* const data = reinterpret_cast<const unsigned char*>(bytes.data());
    if (saved_.crc32) crc32_ = ::crc32_z(crc32_, data, bytes.size());
    if (saved_.sha256) ::crypto_hash_sha256_update(&sha256_, data, bytes.size());
  }

  // Returns what is to be said of them, and whether they are right. To be called once, at the end.
  std::pair<Verdict, std::string> Compare() {
    if (saved_.crc32 && crc32_ != *saved_.crc32) {
      return {Verdict::kWrong,
              fmt::format("its CRC32 is {:#010x}, but {:#010x} was saved", crc32_, *saved_.crc32)};
    }
    if (saved_.sha256) {
      Sha256 sha256 = {};
      ::crypto_hash_sha256_final(&sha256_, reinterpret_cast<unsigned char*>(sha256.data()));
      if (sha256 != *saved_.sha256) {
        return {Verdict::kWrong, fmt::format("its SHA-256 is {}, but {} was saved", Hex(sha256),
                                             Hex(*saved_.sha256))};
      }
    }
    const bool are_both = saved_.crc32 && saved_.sha256;
    return {Verdict::kRight, are_both        ? "its CRC32 and SHA-256 are right"
                             : saved_.sha256 ? "its SHA-256 is right"
                                             : "its CRC32 is right"};
  }

 private:
  const Hashes saved_;
  uLong crc32_ = 0;
  crypto_hash_sha256_state sha256_ = {};
};

// Runs of bytes that have been read, but not hashed. They neither overlap nor touch each other, and
// there are only so many: where there would be more, those that lie farthest are forgotten.
class EarlyRuns {
 public:
  struct Run {
    uint64_t begin = 0;
    uint64_t end = 0;
  };

  void Add(uint64_t begin, uint64_t end) {
    const auto first = std::ranges::lower_bound(runs_, begin, {}, &Run::end);
    if (first == runs_.end() && runs_.size() == kMost) return;
    const auto last = std::ranges::upper_bound(first, runs_.end(), end, {}, &Run::begin);
    if (first == last) {
      runs_.insert(first, {.begin = begin, .end = end});
      if (runs_.size() > kMost) runs_.pop_back();
    } else {
      *first = {.begin = std::min(begin, first->begin), .end = std::max(end, last[-1].end)};
      runs_.erase(first + 1, last);
    }
  }

  // Whether there is a run that goes on from `position`, or before it, and so can be hashed.
  bool HasNext(uint64_t position) const {
    return !runs_.empty() && runs_.front().begin <= position;
  }

  // Precondition: there is a run.
  Run TakeFirst() {
    const Run run = runs_.front();
    runs_.erase(runs_.begin());
    return run;
  }

 private:
  static constexpr size_t kMost = 1000;

  std::vector<Run> runs_;  // Sorted.
};

class VerifiedSource final : public ByteSource {
 public:
  VerifiedSource(Extent data, const Hashes& hashes, std::span<const std::byte> prefix,
                 std::string what, std::shared_ptr<const Verification> verification)
      : data_(std::move(data)),
        what_(std::move(what)),
        verification_(std::move(verification)),
        check_(std::make_unique<Check>(hashes)) {
    check_->hasher.Add(prefix);
  }

  std::string name() const override { return data_.source->name(); }
  uint64_t size() const override { return data_.source->size(); }
  timespec modified() const override { return data_.source->modified(); }
  bool is_hole() const override { return data_.source->is_hole(); }
  bool is_remote() const override { return data_.source->is_remote(); }
  void AdviseFile(ByteRange range) const override { data_.source->AdviseFile(range); }
  void Prefetch(std::span<const ByteRange> ranges) const override {
    data_.source->Prefetch(ranges);
  }
  Verdict verdict() const override { return verdict_; }

  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    if (!Touches(offset, buffer.size())) return data_.source->ReadAt(offset, buffer);
    RefuseIfWrong();
    data_.source->ReadAt(offset, buffer);
    LookAt(offset, 0, buffer.size(), buffer);
    RefuseIfWrong();
  }

  void ReadPiecesAt(uint64_t offset, uint64_t stride, size_t length,
                    std::span<std::byte> buffer) const override {
    const uint64_t count = buffer.size() / length;
    if (count == 0 || !Touches(offset, (count - 1) * stride + length)) {
      return data_.source->ReadPiecesAt(offset, stride, length, buffer);
    }
    RefuseIfWrong();
    data_.source->ReadPiecesAt(offset, stride, length, buffer);
    LookAt(offset, stride, length, buffer);
    RefuseIfWrong();
  }

 private:
  // What is known as long as there is no verdict. Positions count from the beginning of the data.
  struct Check {
    explicit Check(const Hashes& hashes) : hasher(hashes) {}

    Hasher hasher;
    uint64_t hashed = 0;  // All bytes before it are hashed.
    EarlyRuns early;

    // A thread is reading again: the hasher is its own, and nobody else changes `hashed`.
    bool is_reading_again = false;
  };

  bool Touches(uint64_t offset, uint64_t length) const {
    return offset < data_.offset ? length > data_.offset - offset
                                 : length > 0 && offset - data_.offset < data_.length;
  }

  void RefuseIfWrong() const {
    if (verification_->is_enforced && verdict_ == Verdict::kWrong) {
      Fail(EIO, "{}: {}", what_, found_);
    }
  }

  // Takes account of pieces that have been read, which are as those of ReadPiecesAt.
  void LookAt(uint64_t offset, uint64_t stride, size_t length,
              std::span<const std::byte> buffer) const {
    std::unique_lock lock(mutex_);
    if (!check_) return;
    for (; !buffer.empty(); offset += stride, buffer = buffer.subspan(length)) {
      Take(offset, buffer.first(length));
    }
    if (check_->is_reading_again) return;
    if (check_->early.HasNext(check_->hashed)) ReadAgain(lock);
    if (check_->hashed == data_.length) Finish(lock);
  }

  // Hashes `bytes`, which are at `offset` of the source, or remembers where they are. With the
  // lock.
  void Take(uint64_t offset, std::span<const std::byte> bytes) const {
    if (!Touches(offset, bytes.size())) return;
    if (offset < data_.offset) {
      bytes = bytes.subspan(data_.offset - offset);
      offset = data_.offset;
    }
    const uint64_t begin = offset - data_.offset;
    bytes = bytes.first(std::min<uint64_t>(bytes.size(), data_.length - begin));
    const uint64_t end = begin + bytes.size();
    if (end <= check_->hashed) return;
    if (begin > check_->hashed || check_->is_reading_again) return check_->early.Add(begin, end);
    check_->hasher.Add(bytes.subspan(check_->hashed - begin));
    check_->hashed = end;
  }

  // Hashes the early bytes that follow the hashed ones. Begins and ends with the lock, but reads
  // and hashes without it.
  void ReadAgain(std::unique_lock<std::mutex>& lock) const {
    constexpr size_t kPiece = size_t{128} << 10U;
    const auto buffer = std::make_unique_for_overwrite<std::byte[]>(kPiece);
    check_->is_reading_again = true;
    while (check_->early.HasNext(check_->hashed)) {
      const uint64_t end = check_->early.TakeFirst().end;
      uint64_t position = check_->hashed;
      bool is_stopped = false;
      lock.unlock();
      try {
        while (position < end) {
          Cancellation::CheckPreempted();
          const std::span piece(buffer.get(), std::min<uint64_t>(kPiece, end - position));
          data_.source->ReadAt(data_.offset + position, piece);
          check_->hasher.Add(piece);
          position += piece.size();
        }
      } catch (const Preempted&) {
        is_stopped = true;
      } catch (const Error& e) {
        is_stopped = e.code() == EINTR;
      } catch (const std::exception&) {
        // No failure of the read that we are in, which has what it wants. The rest of the run is
        // forgotten; who reads that for himself will be told.
      }
      lock.lock();
      check_->hashed = position;
      if (is_stopped) {  // The next read goes on.
        if (position < end) check_->early.Add(position, end);
        break;
      }
    }
    check_->is_reading_again = false;
  }

  // Ends with the verdict, without the lock.
  void Finish(std::unique_lock<std::mutex>& lock) const {
    auto [verdict, found] = check_->hasher.Compare();
    check_.reset();
    found_ = std::move(found);
    verdict_ = verdict;
    lock.unlock();
    verification_->report(fmt::format("{}: {}", name(), what_), verdict, found_);
  }

  const Extent data_;
  const std::string what_;
  const std::shared_ptr<const Verification> verification_;
  mutable std::string found_;  // Never changes once there is a verdict.
  mutable std::atomic<Verdict> verdict_ = Verdict::kUnread;

  mutable std::mutex mutex_;
  mutable std::unique_ptr<Check> check_;  // Null once there is a verdict.
};

}  // namespace

ByteSourcePtr MakeVerified(const Extent& data, const Hashes& hashes,
                           std::span<const std::byte> prefix, std::string what,
                           std::shared_ptr<const Verification> verification) {
  assert(data.offset <= data.source->size() && data.length <= data.source->size() - data.offset);
  if (data.length == 0 || (!hashes.crc32 && !hashes.sha256)) return data.source;
  return std::make_shared<VerifiedSource>(data, hashes, prefix, std::move(what),
                                          std::move(verification));
}

}  // namespace ckptfs
