#include "tests/support/counting_source.h"

#include <algorithm>
#include <utility>

namespace ckptfs {
namespace {

constexpr uint64_t kBlock = 32 << 10U;     // Bytes.
constexpr uint64_t kHead = 64 << 10U;      // Bytes of the first request.
constexpr uint64_t kFurther = 128 << 10U;  // Bytes that a read fetches beyond its end.
constexpr uint64_t kAtOnce = 8;

}  // namespace

CountingSource::CountingSource(ByteSourcePtr origin, bool is_distant)
    : origin_(std::move(origin)), is_distant_(is_distant) {
  const std::scoped_lock lock(mutex_);
  Fetch(0, std::min(kHead, size()));
  round_trips_ = 1;
}

bool CountingSource::Fetch(uint64_t offset, uint64_t length) const {
  if (length == 0) return false;
  bool is_new = false;
  for (uint64_t block = offset / kBlock; block <= (offset + length - 1) / kBlock; ++block) {
    is_new |= blocks_.insert(block).second;
  }
  return is_new;
}

void CountingSource::ReadAt(uint64_t offset, std::span<std::byte> buffer) const {
  {
    const std::scoped_lock lock(mutex_);
    if (Fetch(offset, buffer.size())) {
      ++round_trips_;
      const uint64_t end = offset + buffer.size();
      const uint64_t begin = offset - std::min(offset, kFurther);
      if (end == size()) {
        Fetch(begin, offset - begin);
      } else {
        Fetch(end, std::min(kFurther, size() - end));
      }
    }
  }
  origin_->ReadAt(offset, buffer);
}

void CountingSource::AdviseFile(ByteRange range) const {
  const std::scoped_lock lock(mutex_);
  expected_.push_back(range);
}

void CountingSource::Prefetch(std::span<const ByteRange> ranges) const {
  const std::scoped_lock lock(mutex_);
  uint64_t fetched = 0;
  for (const ByteRange& range : ranges) fetched += Fetch(range.offset, range.length) ? 1 : 0;
  round_trips_ += (fetched + kAtOnce - 1) / kAtOnce;
}

uint64_t CountingSource::round_trips() const {
  const std::scoped_lock lock(mutex_);
  return round_trips_;
}

uint64_t CountingSource::fetched() const {
  const std::scoped_lock lock(mutex_);
  return blocks_.size() * kBlock;
}

std::vector<ByteRange> CountingSource::expected() const {
  const std::scoped_lock lock(mutex_);
  return expected_;
}

}  // namespace ckptfs
