// Hashes need bytes in order, but the kernel sends several read-ahead requests at once, which
// several threads answer slightly out of order; and a reader of two parts of a tensor may read the
// second one first. Only the range of early bytes is recorded. When the gap before them closes,
// they are read again, from the page cache or a cache of ckptfs. Keeping the bytes instead would
// take as long, and unbounded memory.
//
// One thread at a time reads again. The others do not wait for it: meanwhile all bytes that they
// read are early, and it continues until none follow the hashed bytes.

#include "parser/layer/verified.h"

#include <fmt/format.h>
#include <sodium/crypto_hash_sha256.h>
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <exception>
#include <utility>
#include <vector>

#include "parser/base/cancellation.h"
#include "parser/base/encoding.h"
#include "parser/base/error.h"
#include "parser/base/mutex.h"

namespace ckptfs {
namespace {

using Sha256 = std::array<std::byte, 32>;
static_assert(sizeof(Sha256) == crypto_hash_sha256_BYTES);

// Computes the recorded hashes.
class Hasher {
 public:
  explicit Hasher(const Hashes& saved) : saved_(saved) { ::crypto_hash_sha256_init(&sha256_); }

  void Add(std::span<const std::byte> bytes) {
    const auto* const data = reinterpret_cast<const unsigned char*>(bytes.data());
    if (saved_.crc32) crc32_ = ::crc32_z(crc32_, data, bytes.size());
    if (saved_.sha256) ::crypto_hash_sha256_update(&sha256_, data, bytes.size());
  }

  // Returns the verdict and its message. Call it once, at the end.
  std::pair<Verdict, std::string> Compare() {
    if (saved_.crc32 && crc32_ != *saved_.crc32) {
      return {Verdict::kWrong, fmt::format("CRC32 mismatch (found {:#010x}, expected {:#010x})",
                                           crc32_, *saved_.crc32)};
    }
    if (saved_.sha256) {
      Sha256 sha256 = {};
      ::crypto_hash_sha256_final(&sha256_, reinterpret_cast<unsigned char*>(sha256.data()));
      if (sha256 != *saved_.sha256) {
        return {Verdict::kWrong, fmt::format("SHA-256 mismatch (found {}, expected {})",
                                             Hex(sha256), Hex(*saved_.sha256))};
      }
    }
    const bool are_both = saved_.crc32 && saved_.sha256;
    return {Verdict::kRight, are_both        ? "CRC32 and SHA-256 match"
                             : saved_.sha256 ? "SHA-256 matches"
                                             : "CRC32 matches"};
  }

 private:
  const Hashes saved_;
  uLong crc32_ = 0;
  crypto_hash_sha256_state sha256_ = {};
};

// Runs of bytes that have been read, but not hashed. They neither overlap nor touch each other.
// Their number is limited: the farthest ones are dropped.
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

  // Whether a recorded run contains or follows `position`, and can be hashed.
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

class VerifiedSource final : public ForwardingSource {
 public:
  VerifiedSource(const Extent& data, const Hashes& hashes, std::span<const std::byte> prefix,
                 std::string what, std::shared_ptr<const Verification> verification)
      : ForwardingSource(data.source),
        offset_(data.offset),
        length_(data.length),
        what_(std::move(what)),
        verification_(std::move(verification)),
        check_(std::make_unique<Check>(hashes)) {
    check_->hasher.Add(prefix);
  }

  Verdict verdict() const override { return verdict_; }

  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    if (!Touches(offset, buffer.size())) return source().ReadAt(offset, buffer);
    RefuseIfWrong();
    source().ReadAt(offset, buffer);
    RecordPieces(offset, 0, buffer.size(), buffer);
    RefuseIfWrong();
  }

  void ReadPiecesAt(uint64_t offset, uint64_t stride, size_t length,
                    std::span<std::byte> buffer) const override {
    const uint64_t count = buffer.size() / length;
    if (count == 0 || !Touches(offset, (count - 1) * stride + length)) {
      return source().ReadPiecesAt(offset, stride, length, buffer);
    }
    RefuseIfWrong();
    source().ReadPiecesAt(offset, stride, length, buffer);
    RecordPieces(offset, stride, length, buffer);
    RefuseIfWrong();
  }

 private:
  // The state until there is a verdict. Positions count from the beginning of the data.
  struct Check {
    explicit Check(const Hashes& hashes) : hasher(hashes) {}

    Hasher hasher;
    uint64_t hashed = 0;  // All bytes before it are hashed.
    EarlyRuns early;

    // A thread is reading again, which alone uses the hasher and changes `hashed`.
    bool is_reading_again = false;
  };

  bool Touches(uint64_t offset, uint64_t length) const {
    return offset < offset_ ? length > offset_ - offset : length > 0 && offset - offset_ < length_;
  }

  void RefuseIfWrong() const {
    if (verification_->is_enforced && verdict_ == Verdict::kWrong) {
      Fail(EIO, "{}: {}", what_, found_);
    }
  }

  // Records pieces that have been read, as by ReadPiecesAt.
  void RecordPieces(uint64_t offset, uint64_t stride, size_t length,
                    std::span<const std::byte> buffer) const {
    {
      const MutexLock lock(mutex_);
      if (!check_) return;
      for (; !buffer.empty(); offset += stride, buffer = buffer.subspan(length)) {
        Take(offset, buffer.first(length));
      }
      if (check_->is_reading_again) return;
      if (check_->early.HasNext(check_->hashed)) ReadAgain();
      if (check_->hashed != length_) return;
      Finish();
    }
    verification_->report(fmt::format("{}: {}", name(), what_), verdict_, found_);
  }

  // Hashes `bytes` at `offset` of the source, or records their range.
  void Take(uint64_t offset, std::span<const std::byte> bytes) const REQUIRES(mutex_) {
    if (!Touches(offset, bytes.size())) return;
    if (offset < offset_) {
      bytes = bytes.subspan(offset_ - offset);
      offset = offset_;
    }
    const uint64_t begin = offset - offset_;
    bytes = bytes.first(std::min<uint64_t>(bytes.size(), length_ - begin));
    const uint64_t end = begin + bytes.size();
    if (end <= check_->hashed) return;
    if (begin > check_->hashed || check_->is_reading_again) return check_->early.Add(begin, end);
    check_->hasher.Add(bytes.subspan(check_->hashed - begin));
    check_->hashed = end;
  }

  // Hashes the early bytes that follow the hashed ones. Reads and hashes with the mutex unlocked.
  void ReadAgain() const REQUIRES(mutex_) {
    constexpr size_t kPiece = size_t{128} << 10U;
    const auto buffer = std::make_unique_for_overwrite<std::byte[]>(kPiece);
    Check& check = *check_;  // No other thread replaces it.
    check.is_reading_again = true;
    while (check.early.HasNext(check.hashed)) {
      const uint64_t end = check.early.TakeFirst().end;
      uint64_t position = check.hashed;
      bool is_stopped = false;
      mutex_.unlock();
      try {
        while (position < end) {
          Cancellation::CheckPreempted();
          const std::span piece(buffer.get(), std::min<uint64_t>(kPiece, end - position));
          source().ReadAt(offset_ + position, piece);
          check.hasher.Add(piece);
          position += piece.size();
        }
      } catch (const Preempted&) {
        is_stopped = true;
      } catch (const Error& e) {
        is_stopped = e.code() == EINTR;
      } catch (const std::exception&) {
        // Not an error of this read, which has its bytes. The rest of the run is dropped; a later
        // read of it reports the error.
      }
      mutex_.lock();
      check.hashed = position;
      if (is_stopped) {  // The next read continues.
        if (position < end) check.early.Add(position, end);
        break;
      }
    }
    check.is_reading_again = false;
  }

  void Finish() const REQUIRES(mutex_) {
    auto [verdict, found] = check_->hasher.Compare();
    check_.reset();
    found_ = std::move(found);
    verdict_ = verdict;
  }

  const uint64_t offset_;  // Of the data that have hashes.
  const uint64_t length_;  // Of these.
  const std::string what_;
  const std::shared_ptr<const Verification> verification_;
  mutable std::string found_;  // Never changes once there is a verdict.
  mutable std::atomic<Verdict> verdict_ = Verdict::kUnread;

  mutable Mutex mutex_;
  mutable std::unique_ptr<Check> check_ GUARDED_BY(mutex_);  // Null once there is a verdict.
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
