#include "parser/io/prefetch.h"

#include <algorithm>
#include <span>

namespace ckptfs {
namespace {

// The window: a source may fetch more for a range than is requested.
constexpr size_t kMaxRanges = 512;
constexpr uint64_t kMaxBytes = uint64_t{16} << 20U;

}  // namespace

void Prefetcher::Add(ByteRange range) {
  if (!is_needed_ || range.length == 0) return;
  if (!ranges_.empty() && range.offset < ranges_.back().offset) return;
  ranges_.push_back(range);
}

void Prefetcher::Reach(uint64_t offset) {
  if (prefetched_ == ranges_.size() || offset < ranges_[prefetched_].offset) return;
  size_t end = prefetched_;
  uint64_t bytes = 0;
  while (end < ranges_.size() && end - prefetched_ < kMaxRanges && bytes < kMaxBytes) {
    bytes += ranges_[end].length;
    ++end;
  }
  source_.Prefetch(std::span(ranges_).subspan(prefetched_, end - prefetched_));
  prefetched_ = end;
}

void SequentialPrefetcher::Reach(uint64_t offset) {
  if (offset < end_ || offset >= limit_ || !source_.is_remote()) return;
  window_ = std::min(4 * window_, kMaxBytes);
  const ByteRange ahead{.offset = offset, .length = std::min(window_, limit_ - offset)};
  source_.Prefetch({&ahead, 1});
  end_ = offset + ahead.length;
}

void PrefetchEnds(const ByteSource& source) {
  const uint64_t size = source.size();
  const uint64_t head = std::min(size, kPrefetchedHead);
  const uint64_t tail = std::min(size - head, kPrefetchedTail);
  const ByteRange ends[] = {{.offset = 0, .length = head}, {.offset = size - tail, .length = tail}};
  if (source.is_remote()) source.Prefetch(ends);
}

}  // namespace ckptfs
