// Announces upcoming reads to a remote source, so that it fetches the ranges concurrently or in one
// request, instead of one after another.

#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "parser/io/byte_source.h"

namespace ckptfs {

// Sizes in bytes that all rooms agree on. Opening an object fetches its first kPrefetchedHead
// bytes, so no prefetch has to announce them. PrefetchEnds announces the last kPrefetchedTail
// bytes, too; the range cache fetches at least these of them with the first read of its end
// (kFetchedTail).
constexpr uint64_t kPrefetchedHead = uint64_t{64} << 10U;
constexpr uint64_t kPrefetchedTail = uint64_t{128} << 10U;
constexpr uint64_t kFetchedTail = uint64_t{256} << 10U;
static_assert(kFetchedTail >= kPrefetchedTail);

// Connections to a server for what is read ahead and for what opening an object reads next.
constexpr size_t kUsualConnections = 8;

// If a round trip takes so long, further connections are established before they are needed, and
// further requests cost less than a round trip.
constexpr std::chrono::milliseconds kLongRoundTrip{8};

// Prefetches many small ranges: a window of the next ones at a time, since all at once might be
// more than the cache holds. Does nothing for a local source. Belongs to one thread.
class Prefetcher {
 public:
  // `source` must outlive this.
  explicit Prefetcher(const ByteSource& source) : source_(source), is_needed_(source.is_remote()) {}

  // Adds a range within the source. A range that begins before the last one is ignored.
  void Add(ByteRange range);

  // Call before a read at `offset`; offsets may only grow.
  void Reach(uint64_t offset);

 private:
  const ByteSource& source_;
  const bool is_needed_;
  std::vector<ByteRange> ranges_;
  size_t prefetched_ = 0;  // Of these.
};

// Prefetches for a parser that reads forward from one offset, and may stop before the end. The
// window grows as the parser advances. Belongs to one thread.
class SequentialPrefetcher {
 public:
  // `source` must outlive this.
  SequentialPrefetcher(const ByteSource& source, ByteRange range)
      : source_(source),
        limit_(range.offset + range.length),
        end_(range.offset + std::min(kPrefetchedHead, range.length)) {}

  // Call before a read at `offset`.
  void Reach(uint64_t offset);

 private:
  const ByteSource& source_;
  const uint64_t limit_;               // End of the range.
  uint64_t end_;                       // Of what has been prefetched.
  uint64_t window_ = kPrefetchedHead;  // Bytes that were prefetched last.
};

// Prefetches both ends of `source`, which contain the signature and the directory of any format.
void PrefetchEnds(const ByteSource& source);

}  // namespace ckptfs
