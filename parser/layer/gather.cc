#include "parser/layer/gather.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include "parser/base/cancellation.h"
#include "parser/base/error.h"

namespace ckptfs {
namespace {

uint16_t Reversed(uint16_t unit) { return __builtin_bswap16(unit); }
uint32_t Reversed(uint32_t unit) { return __builtin_bswap32(unit); }
uint64_t Reversed(uint64_t unit) { return __builtin_bswap64(unit); }

// Replaces each T by `f` of it. Elements may be unaligned.
template <typename T, typename F>
void Replace(std::span<std::byte> bytes, const F& f) {
  assert(bytes.size() % sizeof(T) == 0);
  for (size_t i = 0; i < bytes.size(); i += sizeof(T)) {
    T unit;
    std::memcpy(&unit, &bytes[i], sizeof(T));
    unit = static_cast<T>(f(unit));
    std::memcpy(&bytes[i], &unit, sizeof(T));
  }
}

// Like Replace, for integers of `size` bytes.
template <typename F>
void ReplaceIntegers(size_t size, std::span<std::byte> bytes, const F& f) {
  switch (size) {
    case 1:
      return Replace<uint8_t>(bytes, f);
    case 2:
      return Replace<uint16_t>(bytes, f);
    case 4:
      return Replace<uint32_t>(bytes, f);
    default:
      return Replace<uint64_t>(bytes, f);
  }
}

}  // namespace

bool IsComplex(Dtype dtype) { return ItemSize(dtype) != SwapSize(dtype); }

Conversion::Conversion(Dtype dtype, const Storing& storing)
    : item_size_(static_cast<uint8_t>(ItemSize(dtype))) {
  const auto unit = static_cast<uint8_t>(SwapSize(dtype));
  if (storing.is_big_endian) swap_size_ = unit;
  if (storing.is_conjugated && IsComplex(dtype)) {
    negation_ = Negation::kSignBit;
    sign_step_ = item_size_;
    // The negative of the conjugate has the sign of the real part flipped.
    sign_first_ = static_cast<uint8_t>((storing.is_negated ? unit : item_size_) - 1);
  } else if (storing.is_negated) {
    negation_ = NegationOf(dtype);
    sign_step_ = unit;
    sign_first_ = static_cast<uint8_t>(unit - 1);
  }
}

Conversion::Negation Conversion::NegationOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kUint8:
    case Dtype::kInt8:
    case Dtype::kUint16:
    case Dtype::kInt16:
    case Dtype::kUint32:
    case Dtype::kInt32:
    case Dtype::kUint64:
    case Dtype::kInt64:
      return Negation::kTwoComplement;
    case Dtype::kFloat16:
    case Dtype::kBfloat16:
    case Dtype::kFloat32:
    case Dtype::kFloat64:
    case Dtype::kComplex32:
    case Dtype::kComplex64:
    case Dtype::kComplex128:
    case Dtype::kFloat8E4m3fn:
    case Dtype::kFloat8E5m2:
      return Negation::kSignBit;
    case Dtype::kFloat8E4m3fnuz:
    case Dtype::kFloat8E5m2fnuz:
      return Negation::kSignUnlessNan;
    default:
      Fail(ENOTSUP, "it is stored as its negative, but {} has none", Name(dtype));
  }
}

void Conversion::Apply(std::span<std::byte> bytes) const {
  if (swap_size_ > 1) {
    ReplaceIntegers(swap_size_, bytes, [](auto unit) {
      if constexpr (sizeof unit == 1) {
        return unit;
      } else {
        return Reversed(unit);
      }
    });
  }
  switch (negation_) {
    case Negation::kNone:
      break;
    case Negation::kSignBit:
      for (size_t i = sign_first_; i < bytes.size(); i += sign_step_) bytes[i] ^= std::byte{0x80};
      break;
    case Negation::kTwoComplement:
      ReplaceIntegers(item_size_, bytes, [](auto unit) { return decltype(unit){0} - unit; });
      break;
    case Negation::kSignUnlessNan:
      Replace<uint8_t>(bytes, [](uint8_t unit) {
        const bool is_zero_or_nan = (unit & 0x7FU) == 0;
        return is_zero_or_nan ? unit : unit ^ 0x80U;
      });
  }
}

namespace {

// A pread from the page cache costs as much as copying this many bytes (measured: 0.5 us, 6 GB/s).
// Smaller gaps are read, too; larger runs gain nothing by being read together.
constexpr uint64_t kReadCost = 3072;

constexpr uint64_t kTileSize = uint64_t{64} << 10;

// How to gather a box: its axes in an order of their own, innermost first.
//
//   axes[0, run_axes)   are within each run
//   axes[run_axes]      is read `chunk` steps at a time; one step where the run is all
//   the rest            are loops around that
struct Plan {
  enum class Chunk : uint8_t {
    kSpan,    // One read, from the first run to the last with the gaps between them.
    kPieces,  // The runs, without the gaps.
  };

  std::vector<Axis> axes;
  size_t run_axes = 0;
  uint64_t run = 0;        // Bytes.
  bool is_direct = false;  // A run is in memory as it is in the source, and needs no tile.
  Chunk chunk_as = Chunk::kPieces;
  uint64_t chunk = 1;
};

// The bytes that `steps` steps reach, each of them `run` bytes long.
uint64_t Reach(uint64_t steps, uint64_t step, uint64_t run) { return (steps - 1) * step + run; }

bool IsNear(const Axis& axis, uint64_t run) {
  return axis.from <= run || axis.from - run < kReadCost;
}

// Whether the run is all of the box.
bool IsWhole(const Plan& plan) { return plan.run_axes + 1 == plan.axes.size(); }

// Extends the run by axes as long as it is the same in source and memory.
void TakeDense(Plan& plan) {
  plan.is_direct = true;
  for (; !IsWhole(plan); ++plan.run_axes) {
    const Axis& axis = plan.axes[plan.run_axes];
    if (axis.from != plan.run || axis.to != plan.run) break;
    plan.run *= axis.extent;
  }
}

// Extends the run by axes that are near and fit into a tile.
void TakeNear(Plan& plan, uint64_t item_size) {
  plan.is_direct = false;
  plan.run = item_size;
  for (plan.run_axes = 0; !IsWhole(plan); ++plan.run_axes) {
    const Axis& axis = plan.axes[plan.run_axes];
    const uint64_t run = Reach(axis.extent, axis.from, plan.run);
    if (!IsNear(axis, plan.run) || run > kTileSize) break;
    plan.run = std::max(run, plan.run);
  }
}

Plan MakePlan(const Box& box) {
  Plan plan{.axes = box.axes, .run = box.item_size};
  std::erase_if(plan.axes, [](const Axis& axis) { return axis.extent == 1; });
  std::ranges::stable_sort(plan.axes, {}, &Axis::from);
  plan.axes.push_back({.extent = 1});  // An axis to be read in chunks.

  TakeDense(plan);
  if (!IsWhole(plan) && plan.run < kReadCost) TakeNear(plan, box.item_size);
  if (IsWhole(plan)) {
    plan.chunk_as = Plan::Chunk::kSpan;
    return plan;
  }
  const auto next = plan.axes.begin() + static_cast<ptrdiff_t>(plan.run_axes);
  if (!plan.is_direct && IsNear(*next, plan.run)) {
    plan.chunk_as = Plan::Chunk::kSpan;
    plan.chunk = std::min((kTileSize - plan.run) / next->from + 1, next->extent);
    return plan;
  }
  // The remaining axes are far, so the order of their reads does not matter. Prefer the nearest in
  // memory.
  std::iter_swap(next, std::ranges::min_element(next, plan.axes.end() - 1, {}, &Axis::to));
  plan.chunk = std::min(kTileSize / plan.run, next->extent);
  return plan;
}

// Copies `rows` times `items` elements of `size` bytes: the loops of a transposition.
//
// In blocks as wide as a cache line of the processor: each line is written at once, and the lines
// that are read stay in the cache until their last element was used.
template <size_t size>
void CopyPlane(const Axis& items, const Axis& rows, const std::byte* from, std::byte* to) {
  constexpr uint64_t kBlock = std::max<size_t>(64 / size, 8);
  for (uint64_t row_block = 0; row_block < rows.extent; row_block += kBlock) {
    const uint64_t row_end = std::min(row_block + kBlock, rows.extent);
    for (uint64_t item_block = 0; item_block < items.extent; item_block += kBlock) {
      const uint64_t count = std::min(kBlock, items.extent - item_block);
      for (uint64_t row = row_block; row < row_end; ++row) {
        const std::byte* source = from + row * rows.from + item_block * items.from;
        std::byte* target = to + row * rows.to + item_block * items.to;
        if (items.to == size && count == kBlock) {
          for (uint64_t i = 0; i < kBlock; ++i) {
            std::memcpy(target + i * size, source + i * items.from, size);
          }
        } else {
          for (uint64_t i = 0; i < count; ++i) {
            std::memcpy(target + i * items.to, source + i * items.from, size);
          }
        }
      }
    }
  }
}

void CopyRows(size_t length, const Axis& rows, const std::byte* from, std::byte* to) {
  for (uint64_t row = 0; row < rows.extent; ++row) {
    std::memcpy(to + row * rows.to, from + row * rows.from, length);
  }
}

void CopyPlane(size_t size, const Axis& items, const Axis& rows, const std::byte* from,
               std::byte* to) {
  if (items.from == size && items.to == size) {
    return CopyRows(static_cast<size_t>(items.extent) * size, rows, from, to);
  }
  switch (size) {
    case 1:
      return CopyPlane<1>(items, rows, from, to);
    case 2:
      return CopyPlane<2>(items, rows, from, to);
    case 4:
      return CopyPlane<4>(items, rows, from, to);
    case 8:
      return CopyPlane<8>(items, rows, from, to);
    default:
      assert(size == 16);
      return CopyPlane<16>(items, rows, from, to);
  }
}

// Calls `f` with the distance in source and in memory of each step of `axes`, the last axis being
// the outermost.
template <typename F>
void ForEachStep(std::span<const Axis> axes, uint64_t from, uint64_t to, const F& f) {
  if (axes.empty()) return f(from, to);
  const Axis& axis = axes.back();
  for (uint64_t i = 0; i < axis.extent; ++i) {
    ForEachStep(axes.first(axes.size() - 1), from + i * axis.from, to + i * axis.to, f);
  }
}

// Copies all elements of a tile to memory. `axes` have their distances in the tile.
void CopyTile(size_t item_size, std::vector<Axis> axes, const std::byte* tile, std::byte* memory) {
  std::erase_if(axes, [](const Axis& axis) { return axis.extent == 1; });
  while (axes.size() < 2) axes.push_back({.extent = 1, .to = ~uint64_t{0}});
  const auto items = axes.begin();
  const auto rows = items + 1;
  std::iter_swap(items, std::ranges::min_element(axes, {}, &Axis::to));
  std::iter_swap(rows, std::ranges::min_element(rows, axes.end(), {}, &Axis::from));
  ForEachStep(std::span(axes).subspan(2), 0, 0, [&](uint64_t from, uint64_t to) {
    CopyPlane(item_size, *items, *rows, tile + from, memory + to);
  });
}

// Reads the runs of one chunk axis to memory.
void ReadRuns(const ByteSource& source, const Plan& plan, uint64_t offset, std::byte* memory) {
  const Axis& axis = plan.axes[plan.run_axes];
  if (axis.to == plan.run) {
    return source.ReadPiecesAt(offset, axis.from, plan.run, {memory, axis.extent * plan.run});
  }
  for (uint64_t i = 0; i < axis.extent; ++i) {
    source.ReadAt(offset + i * axis.from, {memory + i * axis.to, plan.run});
  }
}

// Reads the steps [begin, begin + count) of the chunk axis into `tile` and copies them from there.
void ReadChunk(const ByteSource& source, const Plan& plan, size_t item_size, uint64_t offset,
               uint64_t count, std::span<std::byte> tile, std::byte* memory) {
  std::vector<Axis> axes(plan.axes.begin(),
                         plan.axes.begin() + static_cast<ptrdiff_t>(plan.run_axes) + 1);
  Axis& axis = axes.back();
  axis.extent = count;
  if (plan.chunk_as == Plan::Chunk::kSpan) {
    source.ReadAt(offset, tile.first(Reach(count, axis.from, plan.run)));
  } else {
    source.ReadPiecesAt(offset, axis.from, plan.run, tile.first(count * plan.run));
    axis.from = plan.run;
  }
  CopyTile(item_size, std::move(axes), tile.data(), memory);
}

// Bytes of the source in a chunk.
uint64_t ChunkSize(const Plan& plan) {
  const bool is_span = plan.chunk_as == Plan::Chunk::kSpan;
  return is_span ? Reach(plan.chunk, plan.axes[plan.run_axes].from, plan.run)
                 : plan.chunk * plan.run;
}

}  // namespace

double GatherCost(const Box& box) {
  const Plan plan = MakePlan(box);
  const uint64_t steps = plan.axes[plan.run_axes].extent;
  const bool is_span = plan.chunk_as == Plan::Chunk::kSpan;
  const uint64_t length = is_span ? ChunkSize(plan) : plan.run;
  auto reads = static_cast<double>(is_span ? (steps - 1) / plan.chunk + 1 : steps);
  for (size_t i = plan.run_axes + 1; i < plan.axes.size(); ++i) {
    reads *= static_cast<double>(plan.axes[i].extent);
  }
  return reads * static_cast<double>(kReadCost + length);
}

void Gather(const ByteSource& source, const Box& box, std::byte* memory) {
  const Plan plan = MakePlan(box);
  const Axis& axis = plan.axes[plan.run_axes];
  const std::span loops = std::span(plan.axes).subspan(plan.run_axes + 1);
  PeriodicCheck steps;
  if (plan.is_direct) {
    return ForEachStep(loops, box.offset, 0, [&](uint64_t offset, uint64_t to) {
      steps.Next();
      ReadRuns(source, plan, offset, memory + to);
    });
  }
  const size_t tile_size = ChunkSize(plan);
  const auto tile = std::make_unique_for_overwrite<std::byte[]>(tile_size);
  ForEachStep(loops, box.offset, 0, [&](uint64_t offset, uint64_t to) {
    for (uint64_t begin = 0; begin < axis.extent; begin += plan.chunk) {
      steps.Next();
      const uint64_t count = std::min(plan.chunk, axis.extent - begin);
      ReadChunk(source, plan, box.item_size, offset + begin * axis.from, count,
                {tile.get(), tile_size}, memory + to + begin * axis.to);
    }
  });
}

}  // namespace ckptfs
