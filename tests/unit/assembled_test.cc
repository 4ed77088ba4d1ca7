#include "parser/layer/assembled.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/io/simple_sources.h"
#include "tests/support/sources.h"

namespace ckptfs {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Lt;
using testing::Property;
using testing::StrEq;
using testing::Throws;
using testing::ThrowsMessage;
using Shape = std::vector<uint64_t>;

// Counts how often it is read.
class CountingSource final : public MemorySource {
 public:
  using MemorySource::MemorySource;

  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    ++reads;
    MemorySource::ReadAt(offset, buffer);
  }

  mutable int reads = 0;
};

Piece PieceOf(Shape offsets, Shape sizes, std::string data) {
  const uint64_t length = data.size();
  return {.box = {.offsets = std::move(offsets), .sizes = std::move(sizes)},
          .data = {std::make_shared<MemorySource>(std::move(data)), 0, length}};
}

std::string ReadAll(const ByteSource& source) { return ReadString(source, 0, source.size()); }

std::string Noise(size_t size) {
  std::mt19937 random(static_cast<uint32_t>(size));
  std::string noise(size, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  return noise;
}

// The elements of `box` in the tensor `whole`, one by one.
std::string Cut(const std::string& whole, const Shape& shape, size_t item_size, const Region& box) {
  std::string cut;
  for (uint64_t i = 0; i < ElementsOf(box); ++i) {
    uint64_t rest = i;
    uint64_t place = 0;
    uint64_t step = 1;
    for (size_t axis = shape.size(); axis-- > 0;) {
      place += (box.offsets[axis] + rest % box.sizes[axis]) * step;
      rest /= box.sizes[axis];
      step *= shape[axis];
    }
    cut += whole.substr(place * item_size, item_size);
  }
  return cut;
}

// Cuts the tensor along random axes until there are `count` boxes.
std::vector<Region> RandomBoxes(const Shape& shape, size_t count, std::mt19937& random) {
  std::vector<Region> boxes = {{.offsets = Shape(shape.size()), .sizes = shape}};
  while (boxes.size() < count) {
    Region& box = boxes[random() % boxes.size()];
    const size_t axis = random() % shape.size();
    if (box.sizes[axis] < 2) continue;
    Region rest = box;
    const uint64_t first = 1 + random() % (box.sizes[axis] - 1);
    box.sizes[axis] = first;
    rest.offsets[axis] += first;
    rest.sizes[axis] -= first;
    boxes.push_back(std::move(rest));
  }
  return boxes;
}

Tiling TilingOf(const Shape& shape, std::span<const Region> boxes) {
  Budget budget(uint64_t{1} << 30);
  return ckptfs::TilingOf(shape, boxes, budget);
}

struct Case {
  std::string name;
  Shape shape;
  size_t item_size;
  size_t pieces;
};

class AnyTiling : public testing::TestWithParam<Case> {};

// The bytes of a tensor that is cut at random, read in ranges of random length and place.
TEST_P(AnyTiling, ReadsAsTheWhole) {
  const Case& param = GetParam();
  std::mt19937 random(7);
  const std::string whole =
      Noise(ElementsOf({.offsets = {}, .sizes = param.shape}) * param.item_size);
  const std::vector<Region> boxes = RandomBoxes(param.shape, param.pieces, random);
  EXPECT_TRUE(TilingOf(param.shape, boxes).is_complete);
  std::vector<Piece> pieces;
  pieces.reserve(boxes.size());
  for (const Region& box : boxes) {
    pieces.push_back(
        PieceOf(box.offsets, box.sizes, Cut(whole, param.shape, param.item_size, box)));
  }
  const auto source = MakeAssembled(param.shape, param.item_size, std::move(pieces));
  ASSERT_EQ(source->size(), whole.size());
  EXPECT_EQ(ReadAll(*source), whole);
  for (int i = 0; i < 200; ++i) {
    const uint64_t offset = random() % whole.size();
    const uint64_t length = 1 + random() % std::min<uint64_t>(whole.size() - offset, 5000);
    ASSERT_EQ(ReadString(*source, offset, length), whole.substr(offset, length))
        << length << " bytes at byte " << offset;
  }
}

INSTANTIATE_TEST_SUITE_P(Assembled, AnyTiling,
                         testing::Values(Case{"OneDimension", {1000}, 4, 7},
                                         Case{"Matrix", {70, 90}, 2, 12},
                                         Case{"ColumnsOfBytes", {300, 16}, 1, 16},
                                         Case{"ColumnsOfComplexNumbers", {40, 8}, 16, 8},
                                         Case{"ThreeDimensions", {12, 13, 14}, 4, 30},
                                         Case{"SixDimensions", {3, 4, 2, 5, 3, 4}, 8, 60},
                                         Case{"DimensionsOfOneElement", {1, 30, 1, 20, 1}, 4, 20},
                                         Case{"LongRuns", {6, 40'000}, 2, 5},
                                         Case{"ManyBlocks", {50'000, 6}, 2, 4}),
                         [](const auto& instance) { return instance.param.name; });

TEST(Assembled, PutsColumnsSideBySide) {
  const auto source =
      MakeAssembled({2, 3}, 1, {PieceOf({0, 1}, {2, 2}, "bcef"), PieceOf({0, 0}, {2, 1}, "ad")});
  EXPECT_EQ(ReadAll(*source), "abcdef");
  EXPECT_EQ(ReadString(*source, 2, 3), "cde");
}

TEST(Assembled, ReadsAScalar) {
  EXPECT_EQ(ReadAll(*MakeAssembled({}, 2, {PieceOf({}, {}, "ab")})), "ab");
}

TEST(Assembled, ReadsAPieceOfWholeRowsAtOnce) {
  const auto rows = std::make_shared<CountingSource>(Noise(30'000));
  const auto source = MakeAssembled(
      {200, 300}, 1,
      {{.box = {.offsets = {50, 0}, .sizes = {100, 300}}, .data = {rows, 0, 30'000}}});
  EXPECT_EQ(ReadString(*source, 15'000, 30'000), ReadAll(*rows));
  EXPECT_EQ(rows->reads, 2);  // One of them is the other side of the comparison.
}

TEST(Assembled, ReadsOnlyThePiecesOfTheRange) {
  const auto last = std::make_shared<CountingSource>("cd");
  const auto source =
      MakeAssembled({2, 2}, 1,
                    {PieceOf({0, 0}, {1, 2}, "ab"),
                     {.box = {.offsets = {1, 0}, .sizes = {1, 2}}, .data = {last, 0, 2}}});
  EXPECT_EQ(ReadString(*source, 0, 2), "ab");
  EXPECT_EQ(last->reads, 0);
}

TEST(Assembled, ReadsBesideAHole) {
  const auto source =
      MakeAssembled({3, 2}, 1, {PieceOf({0, 0}, {1, 2}, "ab"), PieceOf({2, 0}, {1, 2}, "ef")});
  EXPECT_EQ(ReadString(*source, 0, 2), "ab");
  EXPECT_EQ(ReadString(*source, 4, 2), "ef");
}

TEST(Assembled, FailsInAHole) {
  const auto source =
      MakeAssembled({3, 2}, 1, {PieceOf({0, 0}, {1, 2}, "ab"), PieceOf({2, 0}, {1, 2}, "ef")});
  EXPECT_THAT([&] { ReadString(*source, 1, 2); },
              Throws<Error>(AllOf(
                  Property(&Error::code, EIO),
                  Property(&Error::what,
                           StrEq("missing data: 1 of the 2 bytes at byte 1 of the tensor")))));
}

TEST(Assembled, FailsWhereOneColumnIsMissing) {
  const auto source = MakeAssembled({2, 2}, 1, {PieceOf({0, 0}, {2, 1}, "ac")});
  EXPECT_EQ(ReadString(*source, 2, 1), "c");
  EXPECT_THAT([&] { ReadAll(*source); },
              ThrowsMessage<Error>("missing data: 2 of the 4 bytes at byte 0 of the tensor"));
}

TEST(Assembled, RefusesAPieceWithoutAllOfItsBytes) {
  EXPECT_THAT(
      [] {
        MakeAssembled({2, 2}, 4, {PieceOf({0, 0}, {1, 2}, "abcd")});
      },
      ThrowsMessage<Error>("piece: size mismatch (found 4, expected 8)"));
}

TEST(Assembled, RefusesAPieceThatLeavesItsSource) {
  const auto source = std::make_shared<MemorySource>("abcdef");
  EXPECT_THAT(
      [&] {
        MakeAssembled({4}, 1, {{.box = {.offsets = {0}, .sizes = {4}}, .data = {source, 3, 4}}});
      },
      ThrowsMessage<Error>("piece out of range: 4 bytes at byte 3 (source has 6 bytes)"));
}

TEST(Tiling, IsCompleteWhereNothingIsLeftOut) {
  const std::vector<Region> boxes = {{{0, 0}, {2, 1}}, {{0, 1}, {2, 2}}};
  EXPECT_TRUE(TilingOf({2, 3}, boxes).is_complete);
}

TEST(Tiling, IsIncompleteWithAHole) {
  const std::vector<Region> boxes = {{{0, 0}, {2, 1}}, {{0, 2}, {2, 1}}};
  EXPECT_FALSE(TilingOf({2, 3}, boxes).is_complete);
}

TEST(Tiling, OfNothingIsIncomplete) {
  const Tiling tiling = TilingOf({2}, {});
  EXPECT_FALSE(tiling.is_complete);
  EXPECT_THAT(tiling.order, IsEmpty());
}

TEST(Tiling, OfAScalarIsOneBox) {
  const std::vector<Region> boxes = {{{}, {}}};
  EXPECT_TRUE(TilingOf({}, boxes).is_complete);
}

TEST(Tiling, LeavesOutBoxesWithoutElementsWhereverTheyAre) {
  const std::vector<Region> boxes = {{{9}, {0}}, {{0}, {2}}, {{0}, {0}}};
  const Tiling tiling = TilingOf({2}, boxes);
  EXPECT_TRUE(tiling.is_complete);
  EXPECT_THAT(tiling.order, ElementsAre(1));
}

TEST(Tiling, KeepsIdenticalBoxesInTheirOrder) {
  const std::vector<Region> boxes = {{{1}, {1}}, {{0}, {1}}, {{1}, {1}}, {{0}, {1}}};
  const Tiling tiling = TilingOf({2}, boxes);
  EXPECT_TRUE(tiling.is_complete);
  EXPECT_THAT(tiling.order, ElementsAre(1, 3, 0, 2));
}

TEST(Tiling, RefusesBoxesThatOverlap) {
  const std::vector<Region> boxes = {{{0, 0}, {2, 2}}, {{1, 1}, {2, 2}}};
  EXPECT_THAT(
      [&] {
        TilingOf({3, 3}, boxes);
      },
      ThrowsMessage<Error>("its chunks of [2,2] at [0,0] and of [2,2] at [1,1] overlap"));
}

TEST(Tiling, RefusesOverlapsThatMakeUpForAHole) {
  const std::vector<Region> boxes = {{{0}, {2}}, {{1}, {2}}, {{3}, {1}}};
  EXPECT_THAT([&] { TilingOf({5}, boxes); },
              ThrowsMessage<Error>("its chunks of [2] at [0] and of [2] at [1] overlap"));
}

TEST(Tiling, TakesAScalarTwice) {
  const std::vector<Region> boxes = {{{}, {}}, {{}, {}}};
  EXPECT_THAT(TilingOf({}, boxes).order, ElementsAre(0, 1));
}

TEST(Tiling, RefusesABoxThatReachesBeyondTheTensor) {
  const std::vector<Region> boxes = {{{1, 0}, {2, 2}}};
  EXPECT_THAT(
      [&] {
        TilingOf({2, 2}, boxes);
      },
      ThrowsMessage<Error>("its chunk of [2,2] at [1,0] reaches beyond its shape, [2,2]"));
}

TEST(Tiling, RefusesABoxWhoseEndOverflows) {
  const std::vector<Region> boxes = {{{~uint64_t{0}}, {2}}};
  EXPECT_THAT([&] { TilingOf({2}, boxes); },
              ThrowsMessage<Error>(
                  "its chunk of [2] at [18446744073709551615] reaches beyond its shape, [2]"));
}

TEST(Tiling, RefusesABoxOfOtherDimensions) {
  const std::vector<Region> boxes = {{{0}, {2}}};
  EXPECT_THAT(
      [&] {
        TilingOf({2, 2}, boxes);
      },
      ThrowsMessage<Error>(
          "its chunk of [2] at [0] has not as many dimensions as its shape, [2,2]"));
}

// Four boxes around a fifth: no cut reaches from edge to edge.
std::vector<Region> Pinwheel(uint64_t size) {
  return {{{0, 0}, {1, size - 1}},
          {{0, size - 1}, {size - 1, 1}},
          {{size - 1, 1}, {1, size - 1}},
          {{1, 0}, {size - 1, 1}}};
}

// `rows` x `columns` boxes of one element, from `begin` on in both directions.
void AddGrid(std::vector<Region>& boxes, uint64_t begin, uint64_t rows, uint64_t columns) {
  for (uint64_t row = 0; row < rows; ++row) {
    for (uint64_t column = 0; column < columns; ++column) {
      boxes.push_back({{begin + row, begin + column}, {1, 1}});
    }
  }
}

TEST(Tiling, TakesAPinwheel) {
  std::vector<Region> boxes = Pinwheel(12);
  AddGrid(boxes, 1, 10, 10);
  EXPECT_TRUE(TilingOf({12, 12}, boxes).is_complete);
}

TEST(Tiling, FindsTheOneOverlapInAPinwheel) {
  std::vector<Region> boxes = Pinwheel(12);
  AddGrid(boxes, 1, 10, 9);
  boxes.push_back({{5, 9}, {1, 2}});
  EXPECT_THAT(
      [&] {
        TilingOf({12, 12}, boxes);
      },
      ThrowsMessage<Error>("its chunks of [1,1] at [5,9] and of [1,2] at [5,9] overlap"));
}

double SecondsOf(const std::function<void()>& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TEST(Tiling, ChecksAHundredThousandBoxesInNoTime) {
  std::vector<Region> boxes;
  AddGrid(boxes, 0, 250, 400);
  EXPECT_THAT(SecondsOf([&] { EXPECT_TRUE(TilingOf({250, 400}, boxes).is_complete); }), Lt(2));
}

TEST(Tiling, RefusesManyBoxesThatLieTooIrregularly) {
  std::vector<Region> boxes = Pinwheel(202);
  AddGrid(boxes, 1, 200, 200);
  EXPECT_THAT(SecondsOf([&] {
                EXPECT_THAT(
                    [&] {
                      TilingOf({202, 202}, boxes);
                    },
                    Throws<Error>(Property(&Error::code, EFBIG)));
              }),
              Lt(2));
}

TEST(Tiling, CountsTheWorkForAllTensorsThatShareTheirBoxes) {
  std::vector<Region> boxes = Pinwheel(52);
  AddGrid(boxes, 1, 50, 50);
  Budget budget(uint64_t{32} << 20);
  int tensors = 0;
  EXPECT_THAT(SecondsOf([&] {
                EXPECT_THAT(
                    [&] {
                      for (; tensors < 10'000; ++tensors) ckptfs::TilingOf({52, 52}, boxes, budget);
                    },
                    Throws<Error>(Property(&Error::code, EFBIG)));
              }),
              Lt(2));
  EXPECT_GT(tensors, 1);
}

}  // namespace
}  // namespace ckptfs
