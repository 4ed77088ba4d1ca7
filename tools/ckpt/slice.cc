#include "tools/ckpt/slice.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/base/text.h"
#include "parser/layer/strided.h"
#include "tools/ckpt/flipped.h"

namespace ckptfs::ckpt {
namespace {

// What a slice selects of an axis.
struct Range {
  uint64_t begin = 0;
  uint64_t step = 1;
  uint64_t count = 0;
  bool is_removed = false;  // An integer selected it.
  bool is_flipped = false;  // The last one comes first.
};

std::vector<std::string_view> Split(std::string_view text, char separator) {
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
  const std::vector<std::string_view> words = Split(part, ':');
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
  if (!Trim(slice).empty()) parts = Split(slice, ',');
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

}  // namespace

SlicedKey SplitSlice(std::string_view text) {
  const size_t bracket = text.rfind('[');
  if (bracket == std::string_view::npos || !text.ends_with(']')) return {.key = text};
  return {.key = text.substr(0, bracket),
          .slice = text.substr(bracket + 1, text.size() - bracket - 2),
          .has_slice = true};
}

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

}  // namespace ckptfs::ckpt
