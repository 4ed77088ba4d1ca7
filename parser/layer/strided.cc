// A tensor is a box in its storage: a number of steps along each axis, each of some length. Any
// range of the tensor's bytes consists of a few boxes, which gather.h copies. This file decides how
// much to gather: a request of the kernel is a thin slice of a transposed matrix, and takes as many
// reads as a slice that is a hundred times thicker. If it is cheaper, a whole *block* is gathered
// and cached for the next requests. All decisions compare the costs of gather.h.

#include "parser/layer/strided.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "parser/base/error.h"
#include "parser/layer/gather.h"

namespace ckptfs {
namespace {

// The size of a read request of the kernel, in bytes.
constexpr uint64_t kRequest = uint64_t{128} << 10;

// The requests of one reader are in order, except for the few that are processed concurrently.
constexpr uint64_t kNear = 4 * kRequest;

// Bounds of the size of a block. Smaller blocks return the first byte sooner; larger ones have
// longer runs of a transposed matrix.
constexpr uint64_t kMinBlock = uint64_t{2} << 20;
constexpr uint64_t kMaxBlock = uint64_t{8} << 20;

// The maximum cost of a byte of a block before a larger block is tried: that of runs of 1.5 KiB.
constexpr double kGoodCost = 3;

// Returns the dimensions of `view`: contiguous ones merged, those of one element dropped. Steps are
// in elements; steps in memory are not set. Nothing if there are no elements.
std::optional<std::vector<Axis>> AxesOf(const View& view) {
  if (view.shape.size() != view.stride.size()) {
    Fail(EBADMSG, "its shape has {} dimensions, but its stride has {}", view.shape.size(),
         view.stride.size());
  }
  if (std::ranges::find(view.shape, 0U) != view.shape.end()) return std::nullopt;
  std::vector<Axis> axes;
  axes.reserve(view.shape.size());
  for (size_t i = 0; i < view.shape.size(); ++i) {
    const Axis axis{.extent = view.shape[i], .from = view.stride[i]};
    if (axis.extent == 1) continue;
    uint64_t reach = 0;
    uint64_t extent = 0;
    if (!axes.empty() && !__builtin_mul_overflow(axis.extent, axis.from, &reach) &&
        !__builtin_mul_overflow(axis.extent, axes.back().extent, &extent) &&
        axes.back().from == reach) {
      axes.back() = {.extent = extent, .from = axis.from};
    } else {
      axes.push_back(axis);
    }
  }
  return axes;
}

bool AreDense(const std::vector<Axis>& axes) {
  return axes.empty() || (axes.size() == 1 && axes[0].from == 1);
}

// Calls `f(box, length)` for boxes that together are the bytes [begin, end) of a tensor whose first
// element is at `offset` of its source: the rest of an incomplete step of the outermost axis, whole
// steps, the beginning of another incomplete one. Both ends are those of elements.
template <typename F>
void ForEachBox(std::span<const Axis> axes, size_t item_size, uint64_t offset, uint64_t begin,
                uint64_t end, const F& f) {
  if (begin == end) return;
  if (axes.empty()) return f(Box{.offset = offset, .item_size = item_size}, item_size);
  const Axis& axis = axes[0];
  const auto inner = axes.subspan(1);
  uint64_t step = begin / axis.to;
  if (const uint64_t skipped = begin % axis.to; skipped != 0) {
    const uint64_t stop = std::min(end - step * axis.to, axis.to);
    ForEachBox(inner, item_size, offset + step * axis.from, skipped, stop, f);
    ++step;
    begin += stop - skipped;
  }
  if (const uint64_t steps = (end - begin) / axis.to; steps > 0) {
    Box box{.offset = offset + step * axis.from,
            .item_size = item_size,
            .axes{axes.begin(), axes.end()}};
    box.axes[0].extent = steps;
    f(box, steps * axis.to);
    step += steps;
    begin += steps * axis.to;
  }
  if (begin < end) {
    ForEachBox(inner, item_size, offset + step * axis.from, 0, end - begin, f);
  }
}

// A range of the tensor that is gathered as a whole.
struct Block {
  uint64_t index = 0;
  uint64_t begin = 0;  // In bytes.
  uint64_t size = 0;   // In bytes.
};

class StridedSource final : public ByteSource {
 public:
  StridedSource(Extent storage, const View& view, std::vector<Axis> axes,
                std::shared_ptr<BlockCache> blocks)
      : storage_(std::move(storage)),
        conversion_(view.dtype, {.is_big_endian = view.is_big_endian,
                                 .is_conjugated = view.is_conjugated,
                                 .is_negated = view.is_negated}),
        item_size_(ItemSize(view.dtype)),
        axes_(std::move(axes)),
        blocks_(std::move(blocks)) {
    size_ = reach_ = item_size_;
    for (size_t i = axes_.size(); i-- > 0;) {
      axes_[i].from *= item_size_;
      reach_ += (axes_[i].extent - 1) * axes_[i].from;
      axes_[i].to = size_;
      size_ *= axes_[i].extent;
    }
    ChooseBlocks();
  }

  std::string name() const override { return storage_.source->name(); }
  uint64_t size() const override { return size_; }
  timespec modified() const override { return storage_.source->modified(); }
  Verdict verdict() const override { return storage_.source->verdict(); }
  bool is_hole() const override { return storage_.source->is_hole(); }
  bool is_remote() const override { return storage_.source->is_remote(); }

  // Adjacent elements of the tensor may be at both ends of the storage.
  void AdviseFile(ByteRange /*range*/) const override {
    storage_.source->AdviseFile({.offset = storage_.offset, .length = reach_});
  }

  void Prefetch(std::span<const ByteRange> ranges) const override {
    std::vector<ByteRange> boxes;
    for (const ByteRange& range : ranges) {
      if (range.length > 0) AddBoxes(range, boxes);
    }
    storage_.source->Prefetch(boxes);
  }

  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    assert(offset <= size_ && buffer.size() <= size_ - offset);
    while (!buffer.empty()) {
      const Block block = BlockAt(offset);
      const size_t n = std::min<uint64_t>(buffer.size(), block.begin + block.size - offset);
      if (blocks_ == nullptr || !ReadBlock(block, offset, buffer.first(n))) {
        GatherBytes(offset, buffer.first(n));
      }
      buffer = buffer.subspan(n);
      offset += n;
    }
  }

 private:
  // Adds to `boxes` the ranges of the storage with the elements of `range`.
  void AddBoxes(ByteRange range, std::vector<ByteRange>& boxes) const {
    const uint64_t begin = range.offset - range.offset % item_size_;
    const uint64_t last = range.offset + range.length - 1;
    const uint64_t end = last - last % item_size_ + item_size_;
    ForEachBox(axes_, item_size_, storage_.offset, begin, end, [&](const Box& box, uint64_t) {
      uint64_t reach = item_size_;
      for (const Axis& axis : box.axes) reach += (axis.extent - 1) * axis.from;
      boxes.push_back({.offset = box.offset, .length = reach});
    });
  }

  // A block is a number of complete steps of one axis: the outermost one whose steps are not too
  // large. For a transposed matrix, a block is some of its rows, and so a band of columns of the
  // stored matrix: each stored row has a run of the block.
  //
  // If even a step of the second axis is larger than any block (a transposed matrix whose rows have
  // millions of elements), blocks are parts of a row. Then a block reads no more from the source
  // than its requests would, and is not cached: only all the rows that a run crosses would help,
  // which exceed the memory, or a copy of the tensor on disk.
  void ChooseBlocks() {
    DivideBlocks(kMinBlock);
    const double least_cost = CostPerByte(block_);
    double cost = least_cost;
    for (uint64_t most = 2 * kMinBlock; most <= kMaxBlock && cost > kGoodCost; most *= 2) {
      DivideBlocks(most);
      cost = CostPerByte(block_);
    }
    if (cost > 0.75 * least_cost) DivideBlocks(kMinBlock);  // Larger blocks do not help.
    if (blocks_ == nullptr) return;
    const uint64_t request = std::min(block_, kRequest - kRequest % item_size_);
    if (CostPerByte(block_) * 2 <= CostPerByte(request)) {
      owner_ = blocks_->NewOwner();
    } else {
      blocks_ = nullptr;
    }
  }

  // Divides into blocks of at most `most` bytes.
  void DivideBlocks(uint64_t most) {
    group_ = block_ = size_;
    const auto axis = std::ranges::find_if(axes_, [&](const Axis& a) { return a.to <= most; });
    if (axis == axes_.end()) return;
    const uint64_t most_steps = most / axis->to;
    const uint64_t count = (axis->extent - 1) / most_steps + 1;
    group_ = axis->extent * axis->to;
    block_ = ((axis->extent - 1) / count + 1) * axis->to;
  }

  Block BlockAt(uint64_t offset) const {
    const uint64_t per_group = (group_ - 1) / block_ + 1;
    const uint64_t in_group = offset % group_;
    const uint64_t begin = in_group - in_group % block_;
    return {.index = offset / group_ * per_group + begin / block_,
            .begin = offset - in_group + begin,
            .size = std::min(block_, group_ - begin)};
  }

  // Reads a part of a block from the cache; returns whether it did. A random read of a large tensor
  // would pay for a block without benefit, so a block is gathered only for a read near the end of
  // the last one, or if it costs little more.
  bool ReadBlock(const Block& block, uint64_t offset, std::span<std::byte> buffer) const {
    const BlockCache::Key key{.owner = owner_, .index = block.index};
    const size_t begin = offset - block.begin;
    const uint64_t last_end = last_end_.exchange(offset + buffer.size(), std::memory_order_relaxed);
    if (blocks_->Read(key, block.size, begin, buffer, nullptr)) return true;
    const uint64_t jump = offset > last_end ? offset - last_end : last_end - offset;
    if (jump > kNear && CostOfBytes(offset, buffer.size()) * 4 < CostOf(block.begin, block.size)) {
      return false;
    }
    return blocks_->Read(key, block.size, begin, buffer,
                         [&](std::span<std::byte> bytes) { GatherElements(block.begin, bytes); });
  }

  // Gathers bytes that may begin and end within an element.
  void GatherBytes(uint64_t offset, std::span<std::byte> buffer) const {
    while (!buffer.empty()) {
      const uint64_t skipped = offset % item_size_;
      size_t n = buffer.size() - buffer.size() % item_size_;
      if (skipped == 0 && n > 0) {
        GatherElements(offset, buffer.first(n));
      } else {
        std::array<std::byte, 16> element = {};
        GatherElements(offset - skipped, std::span(element).first(item_size_));
        n = std::min<size_t>(item_size_ - skipped, buffer.size());
        std::ranges::copy(std::span(element).subspan(skipped, n), buffer.begin());
      }
      buffer = buffer.subspan(n);
      offset += n;
    }
  }

  void GatherElements(uint64_t offset, std::span<std::byte> buffer) const {
    std::byte* to = buffer.data();
    ForEachBox(axes_, item_size_, storage_.offset, offset, offset + buffer.size(),
               [&](const Box& box, uint64_t length) {
                 Gather(*storage_.source, box, to);
                 to += length;
               });
    conversion_.Apply(buffer);
  }

  // Returns the mean cost of the first `length` bytes.
  double CostPerByte(uint64_t length) const {
    return CostOf(0, length) / static_cast<double>(length);
  }

  // Returns the cost of gathering a range.
  double CostOf(uint64_t offset, uint64_t length) const {
    double cost = 0;
    ForEachBox(axes_, item_size_, storage_.offset, offset, offset + length,
               [&](const Box& box, uint64_t) { cost += GatherCost(box); });
    return cost;
  }

  double CostOfBytes(uint64_t offset, uint64_t length) const {
    const uint64_t begin = offset - offset % item_size_;
    const uint64_t end =
        offset + length + (item_size_ - (offset + length) % item_size_) % item_size_;
    return CostOf(begin, end - begin);
  }

  const Extent storage_;
  const Conversion conversion_;
  const unsigned item_size_;
  std::vector<Axis> axes_;  // In the order of the tensor. Steps are in bytes.
  uint64_t size_ = 0;
  uint64_t reach_ = 0;  // From the first used byte of the storage to the last.

  uint64_t group_ = 0;                  // Bytes in blocks of equal size; the last may be smaller.
  uint64_t block_ = 0;                  // Bytes of a block.
  std::shared_ptr<BlockCache> blocks_;  // Null if blocks do not pay.
  uint64_t owner_ = 0;
  mutable std::atomic<uint64_t> last_end_ = 0;  // Where the last read ended.
};

// A tensor without elements.
class EmptySource final : public ByteSource {
 public:
  explicit EmptySource(ByteSourcePtr storage) : storage_(std::move(storage)) {}

  std::string name() const override { return storage_->name(); }
  uint64_t size() const override { return 0; }
  timespec modified() const override { return storage_->modified(); }
  void ReadAt(uint64_t /*offset*/, std::span<std::byte> /*buffer*/) const override {}

 private:
  const ByteSourcePtr storage_;
};

}  // namespace

bool IsDense(const View& view) {
  const auto axes = AxesOf(view);
  if (!axes) return true;
  const bool is_conjugated = view.is_conjugated && IsComplex(view.dtype);
  const bool is_swapped = view.is_big_endian && SwapSize(view.dtype) > 1;
  return AreDense(*axes) && !is_conjugated && !view.is_negated && !is_swapped;
}

uint64_t ReachOf(const View& view) {
  const auto axes = AxesOf(view);
  if (!axes) return 0;
  if (ElementsPerItem(view.dtype) > 1) {
    if (AreDense(*axes)) return ByteSize(view.dtype, view.shape);
    Fail(ENOTSUP, "its elements of {} do not lie densely", Name(view.dtype));
  }
  int64_t elements = 1;
  bool is_too_far = false;
  for (const Axis& axis : *axes) {
    int64_t reach = 0;
    is_too_far |= __builtin_mul_overflow(axis.extent - 1, axis.from, &reach);
    is_too_far |= __builtin_add_overflow(elements, reach, &elements);
  }
  int64_t bytes = 0;
  is_too_far |= __builtin_mul_overflow(elements, ItemSize(view.dtype), &bytes);
  if (is_too_far) Fail(EOVERFLOW, "the view reaches beyond 2^63 bytes");
  return static_cast<uint64_t>(bytes);
}

ByteSourcePtr MakeStrided(Extent storage, const View& view, std::shared_ptr<BlockCache> blocks) {
  const uint64_t size = ByteSize(view.dtype, view.shape);
  if (const uint64_t reach = ReachOf(view); reach > storage.length) {
    Fail(EBADMSG, "its elements reach {} bytes, but its storage has {}", reach, storage.length);
  }
  auto axes = AxesOf(view);
  if (!axes) return std::make_shared<EmptySource>(std::move(storage.source));
  if (ElementsPerItem(view.dtype) > 1) axes = {{.extent = size, .from = 1}};  // They are dense.
  return std::make_shared<StridedSource>(std::move(storage), view, *std::move(axes),
                                         std::move(blocks));
}

}  // namespace ckptfs
