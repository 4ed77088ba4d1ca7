// In the bytes of the whole tensor, a piece is a run of bytes that repeats at regular distances,
// along one axis for each dimension that the piece does not cover, except the innermost, which
// forms the run. The elements of the piece have the same order, so its part of a range of the whole
// is a range of the piece. A read computes that range by counting the bytes of the piece before
// both ends, reads it, and scatters the runs into the buffer. A piece of whole rows is a single
// run, which is read directly into the buffer.

#include "parser/layer/assembled.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "parser/base/cancellation.h"
#include "parser/base/dtype.h"
#include "parser/base/error.h"

namespace ckptfs {
namespace {

// Bytes of a piece that are read at once before they are scattered: they stay in the processor's
// cache.
constexpr uint64_t kPieceBytes = uint64_t{64} << 10;

// A read from the page cache costs as much as copying 3 KiB (gather.cc), so longer runs are read
// one by one and not copied.
constexpr uint64_t kLongRun = uint64_t{8} << 10;

struct PartAxis {
  uint64_t extent = 0;  // Steps.
  uint64_t step = 0;    // Bytes from one to the next in the whole.
  uint64_t inner = 0;   // Bytes of the piece in one step.
};

struct Part {
  uint64_t begin = 0;              // Of its first byte in the whole.
  uint64_t end = 0;                // Of the byte after its last one.
  uint64_t run = 0;                // Bytes.
  std::span<const PartAxis> axes;  // Outermost first.
  Extent data;
};

// Returns how many bytes of `part` precede `position` in the whole.
uint64_t CountBefore(const Part& part, uint64_t position) {
  if (position <= part.begin) return 0;
  uint64_t rest = position - part.begin;
  uint64_t count = 0;
  for (const PartAxis& axis : part.axes) {
    const uint64_t steps = rest / axis.step;
    if (steps >= axis.extent) return count + axis.extent * axis.inner;
    count += steps * axis.inner;
    rest -= steps * axis.step;
  }
  return count + std::min(rest, part.run);
}

// Iterates over the runs of a part.
class RunIterator {
 public:
  // Begins at the byte `at` of the part.
  RunIterator(const Part& part, uint64_t at) : part_(part), position_(part.begin) {
    for (size_t i = 0; i < part.axes.size(); ++i) {
      const PartAxis& axis = part.axes[i];
      index_[i] = at / axis.inner;
      position_ += index_[i] * axis.step;
      at %= axis.inner;
    }
    in_run_ = at;
  }

  // Of the next byte, in the whole.
  uint64_t position() const { return position_ + in_run_; }

  // Returns the remaining bytes of this run.
  uint64_t left() const { return part_.run - in_run_; }

  // The number of whole runs at equal distances from here on.
  uint64_t runs() const { return in_run_ == 0 ? inner().extent - index_[last()] : 0; }

  // Advances by `bytes`, at most left().
  void SkipBytes(uint64_t bytes) {
    in_run_ += bytes;
    if (in_run_ == part_.run) {
      in_run_ = 0;
      SkipRuns(1);
    }
  }

  // Advances by `runs`, at most runs() or, within a run, one.
  void SkipRuns(uint64_t runs) {
    size_t i = last();
    index_[i] += runs;
    position_ += runs * part_.axes[i].step;
    for (; i > 0 && index_[i] == part_.axes[i].extent; --i) {
      position_ += part_.axes[i - 1].step - index_[i] * part_.axes[i].step;
      index_[i] = 0;
      ++index_[i - 1];
    }
  }

 private:
  size_t last() const { return part_.axes.size() - 1; }
  const PartAxis& inner() const { return part_.axes.back(); }

  const Part& part_;
  std::array<uint64_t, kMaxDimensions> index_ = {};
  uint64_t position_;  // Of the run.
  uint64_t in_run_ = 0;
};

template <size_t length>
void CopyRuns(const std::byte* from, std::byte* to, uint64_t step, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) std::memcpy(to + i * step, from + i * length, length);
}

// Copies `count` consecutive runs of `length` bytes to every `step` bytes of `to`.
void CopyRuns(const std::byte* from, std::byte* to, uint64_t length, uint64_t step,
              uint64_t count) {
  switch (length) {
    case 1:
      return CopyRuns<1>(from, to, step, count);
    case 2:
      return CopyRuns<2>(from, to, step, count);
    case 4:
      return CopyRuns<4>(from, to, step, count);
    case 8:
      return CopyRuns<8>(from, to, step, count);
    case 16:
      return CopyRuns<16>(from, to, step, count);
    case 32:
      return CopyRuns<32>(from, to, step, count);
    default:
      for (uint64_t i = 0; i < count; ++i) std::memcpy(to + i * step, from + i * length, length);
  }
}

class AssembledSource final : public ByteSource {
 public:
  AssembledSource(const std::vector<uint64_t>& shape, size_t item_size, std::vector<Piece> pieces) {
    assert(!pieces.empty());
    size_ = item_size;
    for (const uint64_t extent : shape) size_ *= extent;
    parts_.reserve(pieces.size());
    std::vector<size_t> first_axes;
    first_axes.reserve(pieces.size());
    for (Piece& piece : pieces) {
      first_axes.push_back(axes_.size());
      AddPart(shape, item_size, std::move(piece));
    }
    first_axes.push_back(axes_.size());
    for (size_t i = 0; i < parts_.size(); ++i) {
      parts_[i].axes = std::span<const PartAxis>(axes_).subspan(first_axes[i],
                                                                first_axes[i + 1] - first_axes[i]);
    }
    std::ranges::sort(parts_, {}, &Part::begin);
    reach_.reserve(parts_.size());
    uint64_t reach = 0;
    for (const Part& part : parts_) reach_.push_back(reach = std::max(reach, part.end));
  }

  std::string name() const override { return parts_[0].data.source->name(); }
  uint64_t size() const override { return size_; }
  timespec modified() const override { return parts_[0].data.source->modified(); }

  // Corrupt if one part is, and valid only if all parts are.
  Verdict verdict() const override {
    constexpr Verdict kByWeight[] = {Verdict::kWrong, Verdict::kNone, Verdict::kUnread};
    std::array<bool, 4> has = {};
    for (const Part& part : parts_) has[static_cast<size_t>(part.data.source->verdict())] = true;
    const auto found = std::ranges::find_if(
        kByWeight, [&](Verdict verdict) { return has[static_cast<size_t>(verdict)]; });
    return found == std::end(kByWeight) ? Verdict::kRight : *found;
  }

  bool is_remote() const override {
    return std::ranges::any_of(parts_, [](const Part& p) { return p.data.source->is_remote(); });
  }

  void AdviseFile(ByteRange range) const override {
    ForEachPart(
        range.offset, range.offset + range.length,
        [](const Part& part, uint64_t from, uint64_t to) {
          part.data.source->AdviseFile({.offset = part.data.offset + from, .length = to - from});
        });
  }

  void Prefetch(std::span<const ByteRange> ranges) const override {
    for (const ByteRange& range : ranges) {
      ForEachPart(range.offset, range.offset + range.length,
                  [](const Part& part, uint64_t from, uint64_t to) {
                    const ByteRange ahead{.offset = part.data.offset + from, .length = to - from};
                    part.data.source->Prefetch({&ahead, 1});
                  });
    }
  }

  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    assert(offset <= size_ && buffer.size() <= size_ - offset);
    std::unique_ptr<std::byte[]> block;  // Made by the first part that needs it.
    uint64_t done = 0;
    ForEachPart(offset, offset + buffer.size(), [&](const Part& part, uint64_t from, uint64_t to) {
      Read(part, from, to, offset, buffer, block);
      done += to - from;
    });
    if (done < buffer.size()) {
      Fail(EIO, "missing data: {} of the {} bytes at byte {} of the tensor", buffer.size() - done,
           buffer.size(), offset);
    }
  }

 private:
  // Calls `f(part, from, to)` for each part with bytes in [begin, end) of the whole: its bytes
  // [from, to).
  template <typename F>
  void ForEachPart(uint64_t begin, uint64_t end, const F& f) const {
    const auto first = std::ranges::upper_bound(reach_, begin) - reach_.begin();
    PeriodicCheck steps;
    for (auto part = parts_.begin() + first; part != parts_.end() && part->begin < end; ++part) {
      steps.Next();
      const uint64_t from = CountBefore(*part, begin);
      const uint64_t to = CountBefore(*part, end);
      if (from != to) f(*part, from, to);
    }
  }

  // Adds a part without its axes.
  void AddPart(const std::vector<uint64_t>& shape, size_t item_size, Piece piece) {
    const Region& box = piece.box;
    const Extent& data = piece.data;
    const uint64_t size = ElementsOf(box) * item_size;
    if (data.length != size) {
      Fail(EBADMSG, "piece: size mismatch (found {}, expected {})", data.length, size);
    }
    if (data.offset > data.source->size() || size > data.source->size() - data.offset) {
      Fail(EBADMSG, "piece out of range: {} bytes at byte {} (source has {} bytes)", size,
           data.offset, data.source->size());
    }
    Part part{.run = item_size, .axes = {}, .data = std::move(piece.data)};
    std::vector<PartAxis> axes;  // Innermost first.
    uint64_t step = item_size;   // Of the dimension, in bytes of the whole.
    uint64_t inner = item_size;
    for (size_t i = shape.size(); i-- > 0;) {
      const uint64_t extent = box.sizes[i];
      part.begin += box.offsets[i] * step;
      if (extent > 1) {
        if (axes.empty() && step == part.run) {
          part.run *= extent;
        } else if (!axes.empty() && step == axes.back().step * axes.back().extent) {
          axes.back().extent *= extent;
        } else {
          axes.push_back({.extent = extent, .step = step, .inner = inner});
        }
        inner *= extent;
      }
      step *= shape[i];
    }
    part.end = part.begin + part.run;
    for (const PartAxis& axis : axes) part.end += (axis.extent - 1) * axis.step;
    axes_.insert(axes_.end(), axes.rbegin(), axes.rend());
    parts_.push_back(std::move(part));
  }

  // Reads the bytes [from, to) of `part` to where they belong in `buffer`, which begins at `offset`
  // of the whole.
  static void Read(const Part& part, uint64_t from, uint64_t to, uint64_t offset,
                   std::span<std::byte> buffer, std::unique_ptr<std::byte[]>& block) {
    const ByteSource& source = *part.data.source;
    if (part.axes.empty()) {
      const uint64_t at = part.begin + from - offset;
      return source.ReadAt(part.data.offset + from, buffer.subspan(at, to - from));
    }
    RunIterator next(part, from);
    if (part.run >= kLongRun || to - from <= next.left()) {
      for (uint64_t n = 0; from < to; from += n) {
        n = std::min(next.left(), to - from);
        source.ReadAt(part.data.offset + from, buffer.subspan(next.position() - offset, n));
        next.SkipBytes(n);
      }
      return;
    }
    if (!block) block = std::make_unique_for_overwrite<std::byte[]>(kPieceBytes);
    for (uint64_t n = 0; from < to; from += n) {
      n = std::min(kPieceBytes, to - from);
      const std::span bytes(block.get(), n);
      source.ReadAt(part.data.offset + from, bytes);
      Spread(bytes, part.run, part.axes.back().step, next, offset, buffer);
    }
  }

  // Copies `bytes`, which are those at `next`, to where they belong in `buffer`, as Read does.
  static void Spread(std::span<const std::byte> bytes, uint64_t run, uint64_t step,
                     RunIterator& next, uint64_t offset, std::span<std::byte> buffer) {
    while (!bytes.empty()) {
      std::byte* to = buffer.data() + (next.position() - offset);
      if (const uint64_t runs = std::min(next.runs(), bytes.size() / run); runs > 0) {
        CopyRuns(bytes.data(), to, run, step, runs);
        next.SkipRuns(runs);
        bytes = bytes.subspan(runs * run);
      } else {
        const uint64_t n = std::min<uint64_t>(next.left(), bytes.size());
        std::memcpy(to, bytes.data(), n);
        next.SkipBytes(n);
        bytes = bytes.subspan(n);
      }
    }
  }

  std::vector<Part> parts_;      // In the order of their beginnings.
  std::vector<uint64_t> reach_;  // The largest end of each part and those before it.
  std::vector<PartAxis> axes_;   // Of all parts.
  uint64_t size_ = 0;
};

}  // namespace

ByteSourcePtr MakeAssembled(const std::vector<uint64_t>& shape, size_t item_size,
                            std::vector<Piece> pieces) {
  return std::make_shared<AssembledSource>(shape, item_size, std::move(pieces));
}

}  // namespace ckptfs
