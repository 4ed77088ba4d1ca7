#include "parser/layer/deferred_offset.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace ckptfs {
namespace {

constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();

class DeferredOffsetSource final : public ForwardingSource {
 public:
  DeferredOffsetSource(const Extent& data, ByteRange header, Locate locate)
      : ForwardingSource(data.source),
        offset_(data.offset),
        length_(data.length),
        header_(header),
        locate_(std::move(locate)) {}

  // The header is read before the first byte.
  void AdviseFile(ByteRange range) const override {
    source().AdviseFile(range.offset == offset_ ? WithHeader(range) : range);
  }

  void Prefetch(std::span<const ByteRange> ranges) const override {
    std::vector<ByteRange> ahead(ranges.begin(), ranges.end());
    if (begin_ == kUnknown) {
      const auto first = std::ranges::min_element(ahead, {}, &ByteRange::offset);
      if (first != ahead.end() && first->offset == offset_) {
        *first = WithHeader(*first);
      } else if (first != ahead.end()) {
        ahead.push_back(header_);
      }
    }
    source().Prefetch(ahead);
  }

  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    if (Touches(offset, buffer.size())) offset = Moved(offset, buffer.size());
    source().ReadAt(offset, buffer);
  }

  bool TryReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    if (Touches(offset, buffer.size())) {
      if (begin_ == kUnknown) return false;
      offset = Moved(offset, buffer.size());
    }
    return source().TryReadAt(offset, buffer);
  }

  void ReadPiecesAt(uint64_t offset, uint64_t stride, size_t length,
                    std::span<std::byte> buffer) const override {
    const uint64_t count = buffer.size() / length;
    const uint64_t reach = count == 0 ? 0 : (count - 1) * stride + length;
    if (Touches(offset, reach)) offset = Moved(offset, reach);
    source().ReadPiecesAt(offset, stride, length, buffer);
  }

 private:
  bool Touches(uint64_t offset, uint64_t length) const {
    return offset < offset_ ? length > offset_ - offset : length > 0 && offset - offset_ < length_;
  }

  // `range` begins at the begin of the data.
  ByteRange WithHeader(ByteRange range) const {
    return {.offset = header_.offset,
            .length = range.length + std::max(header_.length, offset_ - header_.offset)};
  }

  // Returns the actual offset of `length` bytes at `offset`.
  uint64_t Moved(uint64_t offset, uint64_t length) const {
    uint64_t begin = begin_;
    if (begin == kUnknown) begin_ = begin = Find({.offset = offset, .length = length});
    return begin + (offset - offset_);
  }

  // Several threads may do this at once, with the same result.
  uint64_t Find(ByteRange wanted) const {
    Prefetch({&wanted, 1});
    std::vector<std::byte> header(header_.length);
    source().ReadAt(header_.offset, header);
    return locate_(header);
  }

  const uint64_t offset_;  // Of the data, provisional.
  const uint64_t length_;  // Of the data.
  const ByteRange header_;
  const Locate locate_;
  mutable std::atomic<uint64_t> begin_ = kUnknown;  // The actual offset of the data.
};

}  // namespace

ByteSourcePtr MakeDeferredOffset(const Extent& data, ByteRange header, Locate locate) {
  return std::make_shared<DeferredOffsetSource>(data, header, std::move(locate));
}

}  // namespace ckptfs
