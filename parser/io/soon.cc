#include "parser/io/soon.h"

#include <algorithm>
#include <span>

namespace ckptfs {
namespace {

// At most so much is told of at once. A source may fetch more for a place than is asked for.
constexpr size_t kMostRanges = 512;
constexpr uint64_t kMostBytes = uint64_t{16} << 20U;

}  // namespace

void Soon::Add(ByteRange range) {
  if (!is_needed_ || range.length == 0) return;
  if (!ranges_.empty() && range.offset < ranges_.back().offset) return;
  ranges_.push_back(range);
}

void Soon::Reach(uint64_t offset) {
  if (told_ == ranges_.size() || offset < ranges_[told_].offset) return;
  size_t end = told_;
  uint64_t bytes = 0;
  while (end < ranges_.size() && end - told_ < kMostRanges && bytes < kMostBytes) {
    bytes += ranges_[end].length;
    ++end;
  }
  source_.ReadSoon(std::span(ranges_).subspan(told_, end - told_));
  told_ = end;
}

void Onward::Reach(uint64_t offset) {
  if (offset < told_ || offset >= source_.size() || !source_.is_remote()) return;
  next_ = std::min(4 * next_, kMostBytes);
  const ByteRange soon{.offset = offset, .length = std::min(next_, source_.size() - offset)};
  source_.ReadSoon({&soon, 1});
  told_ = offset + soon.length;
}

void ReadEndsSoon(const ByteSource& source) {
  constexpr uint64_t kHead = uint64_t{64} << 10U;
  constexpr uint64_t kTail = uint64_t{128} << 10U;
  const uint64_t size = source.size();
  const uint64_t head = std::min(size, kHead);
  const uint64_t tail = std::min(size - head, kTail);
  const ByteRange ends[] = {{.offset = 0, .length = head}, {.offset = size - tail, .length = tail}};
  if (source.is_remote()) source.ReadSoon(ends);
}

}  // namespace ckptfs
