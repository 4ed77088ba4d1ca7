// To compare all pairs would take far too long for the hundred thousand pieces that a large tensor
// may have. But programs write grids, and other tilings that cut a tensor from edge to edge again
// and again: along one axis, the boxes fall into groups with a cut between them, each group does so
// along another axis, and so on until every box is alone. Pairs are compared only within a group
// that no axis divides.

#include "parser/layer/tiling.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <numeric>
#include <string>
#include <tuple>

#include "parser/base/error.h"

namespace ckptfs {
namespace {

std::string Text(const Region& box) {
  return fmt::format("[{}] at [{}]", fmt::join(box.sizes, ","), fmt::join(box.offsets, ","));
}

bool IsEmpty(const Region& box) { return std::ranges::find(box.sizes, 0U) != box.sizes.end(); }

void CheckBounds(const std::vector<uint64_t>& shape, const Region& box) {
  for (size_t i = 0; i < shape.size(); ++i) {
    if (box.sizes[i] <= shape[i] && box.offsets[i] <= shape[i] - box.sizes[i]) continue;
    Fail(EBADMSG, "its chunk of {} reaches beyond its shape, [{}]", Text(box),
         fmt::join(shape, ","));
  }
}

bool DoOverlap(const Region& a, const Region& b) {
  for (size_t i = 0; i < a.sizes.size(); ++i) {
    if (a.offsets[i] + a.sizes[i] <= b.offsets[i] || b.offsets[i] + b.sizes[i] <= a.offsets[i]) {
      return false;
    }
  }
  return true;
}

constexpr uint64_t kComparisonsPerStep = 8;

// Returns the work of sorting `count` boxes along `axes` axes.
uint64_t SortingWork(uint64_t count, uint64_t axes) {
  const auto bits = static_cast<uint64_t>(std::bit_width(count));
  return 1 + count * bits * (1 + axes) / kComparisonsPerStep;
}

class Comparison {
 public:
  // `order` are the indexes of the `boxes` to compare.
  Comparison(std::span<const Region> boxes, std::vector<size_t> order, Budget& budget)
      : boxes_(boxes), order_(std::move(order)), budget_(budget) {}

  // Throws Error if two boxes overlap.
  void Run() {
    if (order_.empty() || boxes_[order_[0]].sizes.empty()) return CompareAll(order_);
    groups_.push_back({.begin = 0, .end = order_.size()});
    while (!groups_.empty()) {
      const Group group = groups_.back();
      groups_.pop_back();
      if (!Divide(group)) {
        CompareAll(std::span(order_).subspan(group.begin, group.end - group.begin));
      }
    }
  }

 private:
  // A range of order_.
  struct Group {
    size_t begin = 0;
    size_t end = 0;
    size_t axis = 0;  // The first one to try.
  };

  // Divides a group along the first axis that divides it, and adds the parts to groups_. Returns
  // false if no axis does.
  bool Divide(const Group& group) {
    constexpr size_t kFew = 8;
    if (group.end - group.begin <= kFew) return false;
    const size_t axes = boxes_[order_[group.begin]].sizes.size();
    for (size_t i = 0; i < axes; ++i) {
      if (DivideAlong((group.axis + i) % axes, group)) return true;
    }
    return false;
  }

  bool DivideAlong(size_t axis, const Group& group) {
    budget_.Work(SortingWork(group.end - group.begin, 1));
    const auto first = order_.begin() + static_cast<ptrdiff_t>(group.begin);
    const auto last = order_.begin() + static_cast<ptrdiff_t>(group.end);
    const auto begin_of = [&](size_t box) { return boxes_[box].offsets[axis]; };
    if (!std::ranges::is_sorted(first, last, {}, begin_of)) {
      std::ranges::sort(first, last, {}, begin_of);
    }
    uint64_t end = 0;
    size_t begin = group.begin;
    for (size_t i = group.begin; i < group.end; ++i) {
      const Region& box = boxes_[order_[i]];
      if (i > begin && box.offsets[axis] >= end) {
        groups_.push_back({.begin = begin, .end = i, .axis = axis + 1});
        begin = i;
      }
      end = std::max(end, box.offsets[axis] + box.sizes[axis]);
    }
    if (begin == group.begin) return false;
    groups_.push_back({.begin = begin, .end = group.end, .axis = axis + 1});
    return true;
  }

  void CompareAll(std::span<const size_t> group) {
    if (group.size() < 2) return;
    const uint64_t pairs = uint64_t{group.size()} * (group.size() - 1) / 2;
    budget_.Work(1 + pairs * (1 + boxes_[group[0]].sizes.size()) / kComparisonsPerStep);
    for (size_t i = 0; i < group.size(); ++i) {
      for (size_t j = i + 1; j < group.size(); ++j) {
        const Region& a = boxes_[std::min(group[i], group[j])];
        const Region& b = boxes_[std::max(group[i], group[j])];
        if (DoOverlap(a, b)) {
          Fail(EBADMSG, "its chunks of {} and of {} overlap", Text(a), Text(b));
        }
      }
    }
  }

  const std::span<const Region> boxes_;
  std::vector<size_t> order_;
  std::vector<Group> groups_;  // To be processed.
  Budget& budget_;
};

}  // namespace

uint64_t ElementsOf(const Region& box) {
  return std::accumulate(box.sizes.begin(), box.sizes.end(), uint64_t{1}, std::multiplies<>());
}

Tiling TilingOf(const std::vector<uint64_t>& shape, std::span<const Region> boxes, Budget& budget) {
  // Tensors may share their boxes, so a few bytes may cause much work.
  budget.Work(SortingWork(boxes.size(), shape.size()));
  Tiling tiling;
  for (size_t i = 0; i < boxes.size(); ++i) {
    const Region& box = boxes[i];
    if (box.offsets.size() != shape.size() || box.sizes.size() != shape.size()) {
      Fail(EBADMSG, "its chunk of {} has not as many dimensions as its shape, [{}]", Text(box),
           fmt::join(shape, ","));
    }
    if (IsEmpty(box)) continue;
    CheckBounds(shape, box);
    tiling.order.push_back(i);
  }
  std::ranges::stable_sort(tiling.order, {},
                           [&](size_t i) { return std::tie(boxes[i].offsets, boxes[i].sizes); });

  std::vector<size_t> distinct = tiling.order;
  const auto is_same = [&](size_t a, size_t b) { return boxes[a] == boxes[b]; };
  distinct.erase(std::unique(distinct.begin(), distinct.end(), is_same), distinct.end());
  uint64_t covered = 0;  // Cannot overflow, since no two boxes overlap.
  for (const size_t i : distinct) covered += ElementsOf(boxes[i]);
  Comparison(boxes, std::move(distinct), budget).Run();
  tiling.is_complete = covered == ElementsOf({.offsets = {}, .sizes = shape});
  return tiling;
}

}  // namespace ckptfs
