// The axes behind the last flipped one are one unit, which is read as it is. The units along that
// axis are a row, whose units are read together and reversed in memory.

#include "tools/ckpt/flipped.h"

#include <algorithm>
#include <cassert>
#include <span>
#include <utility>

namespace ckptfs::ckpt {
namespace {

class Flipped final : public ForwardingSource {
 public:
  Flipped(Extent data, std::vector<FlippedAxis> axes, size_t item_size)
      : ForwardingSource(std::move(data.source)),
        offset_(data.offset),
        size_(data.length),
        unit_(item_size),
        axes_(std::move(axes)) {
    for (; !axes_.back().is_flipped; axes_.pop_back()) unit_ *= axes_.back().size;
    units_ = axes_.back().size;
    axes_.pop_back();
  }

  uint64_t size() const override { return size_; }
  void AdviseFile(ByteRange /*range*/) const override {}
  void Prefetch(std::span<const ByteRange> /*ranges*/) const override {}

  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    assert(offset <= size_ && buffer.size() <= size_ - offset);
    const uint64_t row = units_ * unit_;
    while (!buffer.empty()) {
      const size_t n = std::min<uint64_t>(buffer.size(), row - offset % row);
      ReadRow(offset_ + PlaceOf(offset / row) * row, offset % row, buffer.first(n));
      buffer = buffer.subspan(n);
      offset += n;
    }
  }

 private:
  // Where row `index` of the tensor is among the rows of the source.
  uint64_t PlaceOf(uint64_t index) const {
    uint64_t place = 0;
    uint64_t distance = 1;
    for (size_t i = axes_.size(); i-- > 0;) {
      const auto [size, is_flipped] = axes_[i];
      const uint64_t at = index % size;
      index /= size;
      place += distance * (is_flipped ? size - 1 - at : at);
      distance *= size;
    }
    return place;
  }

  // Reads bytes from `begin` on of the tensor's row that starts at `row` in the source.
  void ReadRow(uint64_t row, uint64_t begin, std::span<std::byte> buffer) const {
    constexpr size_t kAtOnce = size_t{256} << 10U;  // Bytes.
    std::vector<std::byte> units;
    while (!buffer.empty()) {
      const uint64_t first = begin / unit_;
      const uint64_t skipped = begin % unit_;
      const uint64_t count = std::clamp<uint64_t>((skipped + buffer.size() + unit_ - 1) / unit_, 1,
                                                  std::max<uint64_t>(kAtOnce / unit_, 1));
      const size_t n = std::min<uint64_t>(buffer.size(), count * unit_ - skipped);
      if (count == 1) {
        source().ReadAt(row + (units_ - 1 - first) * unit_ + skipped, buffer.first(n));
      } else {
        units.resize(static_cast<size_t>(count * unit_));
        source().ReadAt(row + (units_ - first - count) * unit_, units);
        Reverse(units);
        std::ranges::copy(std::span(units).subspan(skipped, n), buffer.begin());
      }
      buffer = buffer.subspan(n);
      begin += n;
    }
  }

  void Reverse(std::span<std::byte> units) const {
    const auto at = [&](size_t i) { return units.begin() + static_cast<ptrdiff_t>(i * unit_); };
    for (size_t i = 0, j = units.size() / unit_ - 1; i < j; ++i, --j) {
      std::swap_ranges(at(i), at(i + 1), at(j));
    }
  }

  const uint64_t offset_;
  const uint64_t size_;
  uint64_t unit_;                  // Bytes.
  uint64_t units_ = 0;             // Of a row.
  std::vector<FlippedAxis> axes_;  // Those of the rows.
};

}  // namespace

ByteSourcePtr MakeFlipped(Extent data, std::vector<FlippedAxis> axes, size_t item_size) {
  return std::make_shared<Flipped>(std::move(data), std::move(axes), item_size);
}

}  // namespace ckptfs::ckpt
