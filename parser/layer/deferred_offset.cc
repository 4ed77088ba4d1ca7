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
    Move(offset, buffer.size(), true);
    source().ReadAt(offset, buffer);
  }

  bool TryReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    return Move(offset, buffer.size(), false) && source().TryReadAt(offset, buffer);
  }

  void ReadPiecesAt(uint64_t offset, uint64_t stride, size_t length,
                    std::span<std::byte> buffer) const override {
    const uint64_t count = buffer.size() / length;
    Move(offset, count == 0 ? 0 : (count - 1) * stride + length, true);
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

  // Moves `offset`, from which `length` bytes will be read, to their actual offset. Reads the
  // header for that, unless it was read before. Returns whether the offset is actual: without
  // `may_wait`, a header that is not cached is not read. Several threads may do this at once, with
  // the same result.
  bool Move(uint64_t& offset, uint64_t length, bool may_wait) const {
    if (!Touches(offset, length)) return true;
    uint64_t begin = begin_;
    if (begin == kUnknown) {
      std::vector<std::byte> header(header_.length);
      if (may_wait) {
        const ByteRange wanted = {.offset = offset, .length = length};
        Prefetch({&wanted, 1});
        source().ReadAt(header_.offset, header);
      } else if (!source().TryReadAt(header_.offset, header)) {
        return false;
      }
      begin_ = begin = locate_(header);
    }
    offset = begin + (offset - offset_);
    return true;
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
