#include "parser/soon.h"

#include <span>

namespace ckptfs {
namespace {

// At most so much is told of at once. A source may fetch more for a place than is asked for.
constexpr size_t kMostRanges = 512;
constexpr uint64_t kMostBytes = uint64_t{16} << 20U;

}  // namespace

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

}  // namespace ckptfs
