#include "tools/ckpt/slice.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/base/text.h"
#include "parser/layer/strided.h"
#include "tools/ckpt/dequantize.h"
#include "tools/ckpt/entries.h"

namespace ckptfs::ckpt {
namespace {

// The elements that a slice selects along an axis.
struct Range {
  uint64_t begin = 0;
  uint64_t step = 1;
  uint64_t count = 0;
  bool is_removed = false;  // An integer selected it.
  bool is_flipped = false;  // The last one comes first.
};

std::vector<std::string_view> SplitTrimmed(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(Trim(text.substr(0, end)));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

int64_t NumberOf(std::string_view text, std::string_view part) {
  const auto number = ParseNumber<int64_t>(text);
  if (!number) {
    Fail(EINVAL, "slice {}: expected an integer, a slice or ..., found {}", Quoted(part),
         Quoted(text));
  }
  return *number;
}

Range IndexOf(std::string_view part, uint64_t size) {
  const int64_t number = NumberOf(part, part);
  const auto length = static_cast<int64_t>(size);
  if (number < -length || number >= length) {
    Fail(EINVAL, "slice {}: index is out of bounds for axis of size {}", Quoted(part), size);
  }
  return {.begin = static_cast<uint64_t>(number < 0 ? number + length : number),
          .step = 1,
          .count = 1,
          .is_removed = true};
}

// "begin:end:step", each of which may be missing.
Range RangeOf(std::string_view part, uint64_t size) {
  const std::vector<std::string_view> words = SplitTrimmed(part, ':');
  if (words.size() > 3) Fail(EINVAL, "slice {}: has more than three parts", Quoted(part));
  const auto length = static_cast<int64_t>(size);
  const int64_t step = words.size() == 3 && !words[2].empty() ? NumberOf(words[2], part) : 1;
  if (step == 0) Fail(EINVAL, "slice {}: the step must not be zero", Quoted(part));
  const bool is_back = step < 0;
  const auto bound = [&](size_t i, int64_t missing) {
    if (words[i].empty()) return missing;
    const int64_t number = NumberOf(words[i], part);
    return std::clamp<int64_t>(number < 0 ? number + length : number, is_back ? -1 : 0,
                               is_back ? length - 1 : length);
  };
  const int64_t begin = bound(0, is_back ? length - 1 : 0);
  const int64_t end = bound(1, is_back ? -1 : length);
  const auto span =
      static_cast<uint64_t>(std::max<int64_t>(is_back ? begin - end : end - begin, 0));
  const uint64_t size_of_step =
      is_back ? -static_cast<uint64_t>(step) : static_cast<uint64_t>(step);
  const uint64_t count = span / size_of_step + (span % size_of_step != 0 ? 1 : 0);
  const uint64_t back = is_back && count > 0 ? (count - 1) * size_of_step : 0;
  return {.begin = static_cast<uint64_t>(std::max<int64_t>(begin, 0)) - back,
          .step = size_of_step,
          .count = count,
          .is_flipped = is_back};
}

// Returns one range for each axis.
std::vector<Range> RangesOf(std::string_view slice, std::span<const uint64_t> shape) {
  constexpr std::string_view kEllipsis = "...";
  std::vector<std::string_view> parts;
  if (!Trim(slice).empty()) parts = SplitTrimmed(slice, ',');
  if (parts.size() > 1 && parts.back().empty()) parts.pop_back();  // A comma at the end.
  const auto ellipses = std::ranges::count(parts, kEllipsis);
  if (ellipses > 1) Fail(EINVAL, "slice {}: has more than one ...", Quoted(slice));
  const size_t used = parts.size() - static_cast<size_t>(ellipses);
  if (used > shape.size()) {
    Fail(EINVAL, "slice {}: has {} indices, but the tensor has {} dimensions", Quoted(slice), used,
         shape.size());
  }
  const auto place = std::ranges::find(parts, kEllipsis);
  const std::vector<std::string_view> all(shape.size() - used, ":");
  const auto at = place == parts.end() ? place : parts.erase(place);
  parts.insert(at, all.begin(), all.end());
  std::vector<Range> ranges;
  for (size_t i = 0; i < shape.size(); ++i) {
    const bool is_slice = parts[i].find(':') != std::string_view::npos;
    ranges.push_back(is_slice ? RangeOf(parts[i], shape[i]) : IndexOf(parts[i], shape[i]));
  }
  return ranges;
}

struct FlippedAxis {
  uint64_t size = 0;
  bool is_flipped = false;
};

// The elements of a tensor with its flipped axes in reverse order. The axes behind the last flipped
// one are one unit, which is read as it is. The units along that axis are a row, whose units are
// read together and reversed in memory.
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

// Returns the tensor whose elements, of `item_size` bytes and in C order, are the `data`, with the
// flipped axes in reverse order. At least one axis is flipped, and none is empty.
ByteSourcePtr MakeFlipped(Extent data, std::vector<FlippedAxis> axes, size_t item_size) {
  return std::make_shared<Flipped>(std::move(data), std::move(axes), item_size);
}

// A key and the slice behind it: "h.0.weight" and "10:20".
struct SlicedKey {
  std::string_view key;
  std::string_view slice;  // The text between the brackets.
  bool has_slice = false;
};
SlicedKey SplitSlice(std::string_view text) {
  const size_t bracket = text.rfind('[');
  if (bracket == std::string_view::npos || !text.ends_with(']')) return {.key = text};
  return {.key = text.substr(0, bracket),
          .slice = text.substr(bracket + 1, text.size() - bracket - 2),
          .has_slice = true};
}

// Returns the elements of `tensor` that `slice` selects: integers, slices, and one ellipsis, with
// commas between them. As in NumPy, an integer removes its axis, negative numbers count
// from the end, and slices are cut off at the ends of the axis. Nothing is read yet. Throws Error:
// EINVAL if the slice is malformed or does not fit the shape, ENOTSUP if the dtype has no shape in
// elements, or several elements in a byte.
Tensor Sliced(const Tensor& tensor, std::string_view slice) {
  if (tensor.dtype == Dtype::kOpaque || ElementsPerItem(tensor.dtype) != 1 ||
      tensor.sizes != nullptr) {
    Fail(ENOTSUP, "no slices of dtype {}", Name(tensor.dtype));
  }
  const std::vector<Range> ranges = RangesOf(slice, tensor.shape);
  const uint64_t item_size = ItemSize(tensor.dtype);
  View view{.dtype = tensor.dtype, .shape = {}, .stride = {}};
  std::vector<FlippedAxis> axes;
  uint64_t first = 0;  // In elements, like `distance`.
  uint64_t distance = 1;
  for (size_t i = ranges.size(); i-- > 0;) {
    first += ranges[i].begin * distance;
    if (!ranges[i].is_removed) {
      view.shape.push_back(ranges[i].count);
      axes.push_back({ranges[i].count, ranges[i].is_flipped});
      // Of one element or none, a stride may be anything, and must not overflow.
      view.stride.push_back(ranges[i].count > 1 ? ranges[i].step * distance : 1);
    }
    distance *= tensor.shape[i];
  }
  std::ranges::reverse(view.shape);
  std::ranges::reverse(view.stride);
  std::ranges::reverse(axes);
  Tensor sliced{.dtype = tensor.dtype, .foreign_dtype = "", .shape = view.shape, .data = {}};
  const uint64_t size = ByteSize(view.dtype, view.shape);
  const Extent data{tensor.data.source, tensor.data.offset + (size == 0 ? 0 : first * item_size),
                    ReachOf(view)};
  sliced.data = IsDense(view) ? Extent{data.source, data.offset, size}
                              : Extent{MakeStrided(data, view), 0, size};
  if (size > 0 && std::ranges::any_of(axes, &FlippedAxis::is_flipped)) {
    sliced.data = {MakeFlipped(sliced.data, std::move(axes), item_size), 0, size};
  }
  return sliced;
}

// Returns the tensor with that key; null if it is not found. Throws Error(EINVAL) if several
// tensors have it.
const Tensor* Find(const Model& model, std::span<const TensorEntry> tensors, std::string_view key) {
  const auto found = std::ranges::find(tensors, key, &TensorEntry::key);
  if (found == tensors.end()) return nullptr;
  if (std::ranges::find(found + 1, tensors.end(), key, &TensorEntry::key) != tensors.end()) {
    Fail(EINVAL, "{}: has several tensors {}", model.name(), Quoted(key));
  }
  return found->tensor;
}

}  // namespace

Tensor SelectedTensor(const Model& model, const std::string& key, Elements elements) {
  const std::vector<Entry> entries = EntriesOf(model.checkpoint());
  const std::vector<TensorEntry> tensors = TensorsOf(entries);
  const Tensor* const whole = Find(model, tensors, key);
  const SlicedKey sliced = SplitSlice(key);
  const Tensor* const tensor =
      whole != nullptr || !sliced.has_slice ? whole : Find(model, tensors, sliced.key);
  if (tensor == nullptr) {
    Fail(ENOENT, "{}: has no tensor {}", model.name(), Quoted(sliced.key));
  }
  CheckReadable(*tensor, sliced.key);
  const Tensor result = elements == Elements::kNumbers ? Dequantized(*tensor) : *tensor;
  return whole != nullptr ? result : Sliced(result, sliced.slice);
}

}  // namespace ckptfs::ckpt
