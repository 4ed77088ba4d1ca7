#include "parser/layer/strided.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/checkpoint.h"
#include "parser/io/simple_sources.h"
#include "tests/support/sources.h"

namespace ckptfs {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::Lt;
using testing::ThrowsMessage;

constexpr uint64_t kMiB = uint64_t{1} << 20;

// Bytes that count their reads, and fail as many of them as requested.
class CountingSource final : public MemorySource {
 public:
  using MemorySource::MemorySource;

  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    ++reads;
    bytes += buffer.size();
    if (failures > 0 && failures-- > 0) Fail(EIO, "connection reset");
    MemorySource::ReadAt(offset, buffer);
  }

  timespec modified() const override { return {.tv_sec = 1234}; }

  mutable std::atomic<uint64_t> reads = 0;
  mutable std::atomic<uint64_t> bytes = 0;
  mutable std::atomic<int> failures = 0;
};

template <typename T>
std::string BytesOf(const std::vector<T>& elements) {
  return {reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(T)};
}

// Returns bytes that look random and are the same at every run.
std::string Noise(size_t size) {
  std::mt19937 random(static_cast<uint32_t>(size));
  std::string noise(size, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  return noise;
}

Extent Whole(const ByteSourcePtr& source) { return {source, 0, source->size()}; }
Extent Storage(std::string bytes) {
  return Whole(std::make_shared<MemorySource>(std::move(bytes)));
}

std::string ReadAll(const ByteSource& source) { return ReadString(source, 0, source.size()); }

// Reads all elements of a view of `stored`.
template <typename T>
std::vector<T> Read(const std::vector<T>& stored, const View& view) {
  const auto source = MakeStrided(Storage(BytesOf(stored)), view);
  const std::string bytes = ReadAll(*source);
  std::vector<T> elements(bytes.size() / sizeof(T));
  std::memcpy(elements.data(), bytes.data(), bytes.size());
  return elements;
}

// The elements 0, 1, ... `count` - 1.
std::vector<int32_t> Count(int32_t count) {
  std::vector<int32_t> numbers(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) numbers[static_cast<size_t>(i)] = i;
  return numbers;
}

View Int32(std::vector<uint64_t> shape, std::vector<uint64_t> stride) {
  return {.dtype = Dtype::kInt32, .shape = std::move(shape), .stride = std::move(stride)};
}

// A transposed matrix of float32 with so many rows and columns after the transposition.
View Transposed(uint64_t rows, uint64_t columns) {
  return {.dtype = Dtype::kFloat32, .shape = {rows, columns}, .stride = {1, rows}};
}

// The bytes of a view, computed element by element and bit by bit.
std::string Expected(const std::string& stored, const View& view) {
  const unsigned item_size = ItemSize(view.dtype);
  std::string all;
  uint64_t count = 1;
  for (const uint64_t extent : view.shape) count *= extent;
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t rest = i;
    uint64_t place = 0;
    for (size_t d = view.shape.size(); d-- > 0; rest /= view.shape[d]) {
      place += rest % view.shape[d] * view.stride[d];
    }
    std::string item = stored.substr(place * item_size, item_size);
    const unsigned unit = SwapSize(view.dtype);
    for (unsigned part = 0; part < item_size / unit; ++part) {
      const auto begin = item.begin() + static_cast<ptrdiff_t>(part) * unit;
      if (view.is_big_endian) std::reverse(begin, begin + unit);
      const bool is_flipped = view.is_negated != (view.is_conjugated && part == 1);
      char& sign = *(begin + unit - 1);
      if (is_flipped) sign = static_cast<char>(sign ^ '\x80');
    }
    all += item;
  }
  return all;
}

TEST(Strided, ReadsATransposedMatrix) {
  EXPECT_THAT(Read(Count(6), Int32({3, 2}, {1, 3})), ElementsAre(0, 3, 1, 4, 2, 5));
}

TEST(Strided, ReadsSomeColumnsOfAMatrix) {
  EXPECT_THAT(Read(Count(12), Int32({3, 2}, {4, 1})), ElementsAre(0, 1, 4, 5, 8, 9));
}

TEST(Strided, ReadsEveryThirdElement) {
  EXPECT_THAT(Read(Count(8), Int32({3}, {3})), ElementsAre(0, 3, 6));
}

TEST(Strided, RepeatsARowThatWasExpanded) {
  EXPECT_THAT(Read(Count(3), Int32({2, 3}, {0, 1})), ElementsAre(0, 1, 2, 0, 1, 2));
}

TEST(Strided, RepeatsAColumnThatWasExpanded) {
  EXPECT_THAT(Read(Count(3), Int32({3, 2}, {1, 0})), ElementsAre(0, 0, 1, 1, 2, 2));
}

TEST(Strided, RepeatsAScalarThatWasExpandedInAllDimensions) {
  EXPECT_THAT(Read<int32_t>({7}, Int32({2, 2}, {0, 0})), ElementsAre(7, 7, 7, 7));
}

TEST(Strided, ReadsWindowsThatOverlap) {
  EXPECT_THAT(Read(Count(5), Int32({3, 3}, {1, 1})), ElementsAre(0, 1, 2, 1, 2, 3, 2, 3, 4));
}

TEST(Strided, ReadsAnImageWhoseChannelsAreLast) {
  EXPECT_THAT(Read(Count(12), Int32({1, 3, 2, 2}, {12, 1, 6, 3})),
              ElementsAre(0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11));
}

TEST(Strided, ReadsAScalar) { EXPECT_THAT(Read<int32_t>({7}, Int32({}, {})), ElementsAre(7)); }

TEST(Strided, IgnoresTheStrideOfADimensionOfOneElement) {
  EXPECT_THAT(Read(Count(4), Int32({2, 1, 2}, {1, ~uint64_t{0}, 2})), ElementsAre(0, 2, 1, 3));
}

TEST(Strided, HasNoBytesWithoutElements) {
  const auto source = MakeStrided(Storage(""), Int32({3, 0, 2}, {~uint64_t{0}, 1, 5}));
  EXPECT_EQ(source->size(), 0U);
  EXPECT_EQ(ReadString(*source, 0, 0), "");
}

TEST(Strided, BeginsWhereItsStorageDoes) {
  const auto memory = std::make_shared<MemorySource>("xxadbecf");
  const View view{.dtype = Dtype::kUint8, .shape = {2, 3}, .stride = {1, 2}};
  EXPECT_EQ(ReadAll(*MakeStrided({memory, 2, 6}, view)), "abcdef");
}

TEST(Strided, ReadsRangesThatBeginAndEndWithinElements) {
  const auto source = MakeStrided(Storage("0123abcd4567efgh"), Int32({2, 2}, {1, 2}));
  EXPECT_EQ(ReadAll(*source), "01234567abcdefgh");
  EXPECT_EQ(ReadString(*source, 1, 2), "12");
  EXPECT_EQ(ReadString(*source, 3, 2), "34");
  EXPECT_EQ(ReadString(*source, 2, 12), "234567abcdef");
}

TEST(Strided, CountsBytesWhereTwoElementsShareOne) {
  const View view{.dtype = Dtype::kQuint4x2, .shape = {2, 3}, .stride = {3, 1}};
  EXPECT_EQ(ReadAll(*MakeStrided(Storage("abcd"), view)), "abcd");
}

TEST(Strided, TurnsTheBytesOfBigEndianElements) {
  const View view{
      .dtype = Dtype::kUint16, .shape = {2, 2}, .stride = {1, 2}, .is_big_endian = true};
  EXPECT_EQ(ReadAll(*MakeStrided(Storage("abcdefgh"), view)), "bafedchg");
}

TEST(Strided, TurnsTheHalvesOfBigEndianComplexNumbers) {
  const View view{.dtype = Dtype::kComplex64, .shape = {1}, .stride = {1}, .is_big_endian = true};
  EXPECT_EQ(ReadAll(*MakeStrided(Storage("abcdefgh"), view)), "dcbahgfe");
}

TEST(Strided, ConjugatesComplexNumbers) {
  const View view{.dtype = Dtype::kComplex64, .shape = {2}, .stride = {1}, .is_conjugated = true};
  EXPECT_THAT(Read(std::vector<float>{1, 2, -3, -4}, view), ElementsAre(1, -2, -3, 4));
}

TEST(Strided, NegatesComplexNumbers) {
  const View view{.dtype = Dtype::kComplex128, .shape = {2}, .stride = {1}, .is_negated = true};
  EXPECT_THAT(Read(std::vector<double>{1, 2, -3, -4}, view), ElementsAre(-1, -2, 3, 4));
}

TEST(Strided, NegatesConjugates) {
  const View view{.dtype = Dtype::kComplex64,
                  .shape = {2},
                  .stride = {1},
                  .is_conjugated = true,
                  .is_negated = true};
  EXPECT_THAT(Read(std::vector<float>{1, 2, -3, -4}, view), ElementsAre(-1, 2, 3, -4));
}

TEST(Strided, NegatesHalvesOfComplexNumbers) {
  const View view{.dtype = Dtype::kFloat32, .shape = {2}, .stride = {2}, .is_negated = true};
  EXPECT_THAT(Read(std::vector<float>{1, 2, 0, -4}, view), ElementsAre(-1, -0.0F));
}

TEST(Strided, NegatesIntegers) {
  View view{.shape = {4}, .stride = {1}, .is_negated = true};
  view.dtype = Dtype::kInt8;
  EXPECT_THAT(Read(std::vector<int8_t>{0, 1, -2, -128}, view), ElementsAre(0, -1, 2, -128));
  view.dtype = Dtype::kUint16;
  EXPECT_THAT(Read(std::vector<uint16_t>{0, 1, 2, 65535}, view), ElementsAre(0, 65535, 65534, 1));
  view.dtype = Dtype::kInt32;
  EXPECT_THAT(Read(std::vector<int32_t>{0, 1, -2, INT32_MIN}, view),
              ElementsAre(0, -1, 2, INT32_MIN));
  view.dtype = Dtype::kUint64;
  EXPECT_THAT(Read(std::vector<uint64_t>{0, 1, 2, ~uint64_t{0}}, view),
              ElementsAre(0, ~uint64_t{0}, ~uint64_t{1}, 1));
}

TEST(Strided, NegatesBigEndianIntegers) {
  const View view{.dtype = Dtype::kInt16,
                  .shape = {1},
                  .stride = {1},
                  .is_big_endian = true,
                  .is_negated = true};
  EXPECT_THAT(Read(std::vector<int16_t>{0x0100}, view), ElementsAre(-1));
}

TEST(Strided, NegatesTheFloatsOfOneByteThatHaveNoNegativeZero) {
  const View view{.dtype = Dtype::kFloat8E4m3fnuz, .shape = {4}, .stride = {1}, .is_negated = true};
  EXPECT_THAT(Read(std::vector<uint8_t>{0x00, 0x01, 0x80, 0xFF}, view),
              ElementsAre(0x00, 0x81, 0x80, 0x7F));
}

TEST(Strided, IsTheSameIfRealNumbersAreConjugated) {
  const View view{.dtype = Dtype::kFloat32, .shape = {2}, .stride = {2}, .is_conjugated = true};
  EXPECT_THAT(Read(std::vector<float>{1, 2, -3, -4}, view), ElementsAre(1, -3));
}

TEST(Strided, RefusesNegativesOfBooleans) {
  const View view{.dtype = Dtype::kBool, .shape = {1}, .stride = {1}, .is_negated = true};
  EXPECT_THAT([&] { MakeStrided(Storage("x"), view); },
              ThrowsMessage<Error>("it is stored as its negative, but bool has none"));
}

TEST(Strided, RefusesAStorageThatIsTooSmall) {
  EXPECT_THAT([] { MakeStrided(Storage("0123456789"), Int32({2}, {2})); },
              ThrowsMessage<Error>("its elements reach 12 bytes, but its storage has 10"));
}

TEST(Strided, RefusesAStrideOfOtherDimensions) {
  EXPECT_THAT(
      [] {
        MakeStrided(Storage(""), Int32({2, 3}, {1}));
      },
      ThrowsMessage<Error>("its shape has 2 dimensions, but its stride has 1"));
}

TEST(Strided, RefusesATensorWhoseSizeIsNoNumber) {
  EXPECT_THAT(
      [] {
        MakeStrided(Storage("0123"), Int32({uint64_t{1} << 40, uint64_t{1} << 40}, {0, 0}));
      },
      ThrowsMessage<Error>("its shape needs more than 2^63 bytes"));
}

TEST(Strided, ReadsATensorOfExabytesThatIsStoredInAFewBytes) {
  const uint64_t huge = uint64_t{1} << 60;
  const auto source =
      MakeStrided(Storage("abcd"), Int32({huge}, {0}), std::make_shared<BlockCache>());
  EXPECT_EQ(source->size(), 4 * huge);
  EXPECT_EQ(ReadString(*source, 4 * huge - 6, 6), "cdabcd");
}

TEST(Strided, ReadsLongRowsAndNothingBetweenThem) {
  const View view{.dtype = Dtype::kUint8, .shape = {2, 3, 4000}, .stride = {50'000, 10'000, 1}};
  const std::string stored = Noise(ReachOf(view));
  const auto memory = std::make_shared<CountingSource>(stored);
  const auto source = MakeStrided(Whole(memory), view);
  EXPECT_TRUE(ReadAll(*source) == Expected(stored, view));
  EXPECT_EQ(memory->bytes, 24'000U);
  EXPECT_EQ(memory->reads, 6U);
}

TEST(Strided, ReadsThroughShortGapsInOneRead) {
  const View view{.dtype = Dtype::kUint8, .shape = {100, 4}, .stride = {20, 1}};
  const std::string stored = Noise(ReachOf(view));
  const auto memory = std::make_shared<CountingSource>(stored);
  EXPECT_TRUE(ReadAll(*MakeStrided(Whole(memory), view)) == Expected(stored, view));
  EXPECT_EQ(memory->reads, 1U);
}

TEST(Strided, HasTheNameAndTheTimeOfItsStorage) {
  const auto memory = std::make_shared<CountingSource>("0123");
  const auto one = MakeStrided(Whole(memory), Int32({1}, {1}));
  EXPECT_EQ(one->name(), "memory");
  EXPECT_EQ(one->modified().tv_sec, 1234);
  const auto none = MakeStrided(Whole(memory), Int32({0}, {1}));
  EXPECT_EQ(none->name(), "memory");
  EXPECT_EQ(none->modified().tv_sec, 1234);
}

TEST(IsDense, IsTrueForRowsInOrder) { EXPECT_TRUE(IsDense(Int32({2, 3, 4}, {12, 4, 1}))); }

TEST(IsDense, IsTrueForAScalar) { EXPECT_TRUE(IsDense(Int32({}, {}))); }

TEST(IsDense, IsTrueForAnyStrideOfOneElement) {
  EXPECT_TRUE(IsDense(Int32({1, 3, 1}, {77, 1, 0})));
}

TEST(IsDense, IsTrueWithoutElements) { EXPECT_TRUE(IsDense(Int32({0, 3}, {5, 7}))); }

TEST(IsDense, IsTrueForBigEndianBytes) {
  EXPECT_TRUE(IsDense({.dtype = Dtype::kInt8, .shape = {3}, .stride = {1}, .is_big_endian = true}));
}

TEST(IsDense, IsTrueForConjugatedRealNumbers) {
  EXPECT_TRUE(
      IsDense({.dtype = Dtype::kFloat32, .shape = {3}, .stride = {1}, .is_conjugated = true}));
}

TEST(IsDense, IsFalseForAGapBetweenRows) { EXPECT_FALSE(IsDense(Int32({2, 3}, {4, 1}))); }

TEST(IsDense, IsFalseForATransposedMatrix) { EXPECT_FALSE(IsDense(Int32({2, 2}, {1, 2}))); }

TEST(IsDense, IsFalseForAStep) { EXPECT_FALSE(IsDense(Int32({3}, {2}))); }

TEST(IsDense, IsFalseForAnElementThatWasExpanded) { EXPECT_FALSE(IsDense(Int32({3}, {0}))); }

TEST(IsDense, IsFalseForBigEndianElements) {
  EXPECT_FALSE(
      IsDense({.dtype = Dtype::kInt16, .shape = {3}, .stride = {1}, .is_big_endian = true}));
}

TEST(IsDense, IsFalseForConjugatedComplexNumbers) {
  EXPECT_FALSE(
      IsDense({.dtype = Dtype::kComplex64, .shape = {3}, .stride = {1}, .is_conjugated = true}));
}

TEST(IsDense, IsFalseForNegatives) {
  EXPECT_FALSE(IsDense({.dtype = Dtype::kInt8, .shape = {3}, .stride = {1}, .is_negated = true}));
}

TEST(IsDense, IsFalseForStridesThatOnlyOverflowToBeDense) {
  EXPECT_FALSE(IsDense(Int32({2, uint64_t{1} << 63, 2}, {0, 2, 1})));
}

TEST(ReachOf, IsTheEndOfTheLastElement) {
  EXPECT_EQ(ReachOf(Int32({3, 2}, {1, 10})), 4U * (2 + 10 + 1));
}

TEST(ReachOf, IsOneElementForAScalar) { EXPECT_EQ(ReachOf(Int32({}, {})), 4U); }

TEST(ReachOf, IsNothingWithoutElements) { EXPECT_EQ(ReachOf(Int32({5, 0}, {100, 1})), 0U); }

TEST(ReachOf, IsOneElementIfThatWasExpanded) { EXPECT_EQ(ReachOf(Int32({5, 7}, {0, 0})), 4U); }

TEST(ReachOf, RefusesAStrideThatIsTooLong) {
  EXPECT_THAT([] { ReachOf(Int32({2}, {uint64_t{1} << 63})); },
              ThrowsMessage<Error>("the view reaches beyond 2^63 bytes"));
}

TEST(ReachOf, RefusesElementsThatAreTooFarInBytes) {
  EXPECT_EQ(ReachOf(Int32({2}, {(uint64_t{1} << 61) - 2})), (uint64_t{1} << 63) - 4);
  EXPECT_THAT([] { ReachOf(Int32({2}, {(uint64_t{1} << 61) - 1})); },
              ThrowsMessage<Error>("the view reaches beyond 2^63 bytes"));
}

TEST(ReachOf, RefusesDimensionsThatAreTooFarTogether) {
  const uint64_t far = uint64_t{1} << 62;
  EXPECT_THAT(
      [&] {
        ReachOf(Int32({2, 2, 2, 2}, {far, far, far, far}));
      },
      ThrowsMessage<Error>("the view reaches beyond 2^63 bytes"));
}

TEST(ReachOf, RefusesElementsThatShareAByteAndAreNotDense) {
  EXPECT_THAT([] { ReachOf({.dtype = Dtype::kQuint4x2, .shape = {3}, .stride = {2}}); },
              ThrowsMessage<Error>("its elements of quint4x2 do not lie densely"));
}

// Random views of all kinds equal copies element by element.
class RandomViews : public testing::TestWithParam<Dtype> {
 protected:
  uint64_t Random(uint64_t least, uint64_t most) { return least + random_() % (most - least + 1); }

  View RandomView() {
    View view = AnyView();
    while (ReachOf(view) > 8 * kMiB) view = AnyView();
    return view;
  }

 private:
  // Dimensions in any order, some of them far apart, some overlapping, some expanded.
  View AnyView() {
    View view{.dtype = GetParam()};
    const uint64_t dimensions = Random(0, 5);
    uint64_t reach = 1;
    for (uint64_t i = 0; i < dimensions; ++i) {
      const uint64_t extent = Random(0, 5) == 0 ? 1 : Random(2, dimensions < 3 ? 300 : 9);
      const std::array<uint64_t, 6> strides{
          0, 1, reach, reach, reach + Random(1, 9), Random(1, 2) * Random(1, 3000)};
      const uint64_t stride = strides[Random(0, 5)];
      const uint64_t place = Random(0, view.shape.size());
      view.shape.insert(view.shape.begin() + static_cast<ptrdiff_t>(place), extent);
      view.stride.insert(view.stride.begin() + static_cast<ptrdiff_t>(place), stride);
      reach = std::max(reach, (extent - 1) * stride + reach);
    }
    view.is_big_endian = Random(0, 3) == 0;
    const bool is_complex = SwapSize(view.dtype) != ItemSize(view.dtype);
    view.is_conjugated = is_complex && Random(0, 3) == 0;
    view.is_negated = view.dtype != Dtype::kBool && Random(0, 3) == 0;
    return view;
  }

  std::mt19937_64 random_{static_cast<uint64_t>(GetParam())};
};

TEST_P(RandomViews, AreReadAsElementByElement) {
  const auto blocks = std::make_shared<BlockCache>();
  for (int round = 0; round < 60; ++round) {
    const View view = RandomView();
    SCOPED_TRACE(testing::Message()
                 << "round " << round << ", shape " << testing::PrintToString(view.shape)
                 << ", stride " << testing::PrintToString(view.stride));
    const std::string before = Noise(Random(0, 40));
    const std::string stored = Noise(ReachOf(view));
    const auto memory = std::make_shared<MemorySource>(before + stored);
    const Extent storage{memory, before.size(), stored.size()};
    const std::string expected = Expected(stored, view);
    const auto source = MakeStrided(storage, view, round % 2 == 0 ? blocks : nullptr);
    ASSERT_EQ(source->size(), expected.size());
    for (int range = 0; range < 8; ++range) {
      const uint64_t begin = Random(0, expected.size());
      const uint64_t length = std::min<uint64_t>(Random(0, 70000), expected.size() - begin);
      ASSERT_TRUE(ReadString(*source, begin, length) == expected.substr(begin, length))
          << length << " bytes at " << begin;
    }
    ASSERT_TRUE(ReadAll(*source) == expected);
  }
}

INSTANTIATE_TEST_SUITE_P(OfEverySize, RandomViews,
                         testing::Values(Dtype::kBool, Dtype::kFloat8E5m2, Dtype::kFloat16,
                                         Dtype::kBfloat16, Dtype::kFloat32, Dtype::kComplex32,
                                         Dtype::kFloat64, Dtype::kComplex64, Dtype::kComplex128),
                         [](const auto& dtype) { return std::string(Name(dtype.param)); });

class Blocks : public testing::Test {
 protected:
  // A matrix of 9 MiB that is stored transposed.
  static constexpr uint64_t kRows = 1500;
  static constexpr uint64_t kColumns = 1600;

  static std::string TransposedBytes(const std::string& stored) {
    std::string bytes(stored.size(), '\0');
    for (uint64_t row = 0; row < kRows; ++row) {
      for (uint64_t column = 0; column < kColumns; ++column) {
        std::memcpy(&bytes[(row * kColumns + column) * 4], &stored[(column * kRows + row) * 4], 4);
      }
    }
    return bytes;
  }

  const std::string stored_ = Noise(kRows * kColumns * 4);
  const std::string expected_ = TransposedBytes(stored_);
  const std::shared_ptr<CountingSource> memory_ = std::make_shared<CountingSource>(stored_);
  const std::shared_ptr<BlockCache> blocks_ = std::make_shared<BlockCache>();
  const ByteSourcePtr matrix_ = MakeStrided(Whole(memory_), Transposed(kRows, kColumns), blocks_);
};

// Reads all of `source` in requests of 128 KiB.
std::string ReadInRequests(const ByteSource& source) {
  std::string text;
  while (text.size() < source.size()) {
    text += ReadString(source, text.size(),
                       std::min<uint64_t>(uint64_t{128} << 10, source.size() - text.size()));
  }
  return text;
}

TEST_F(Blocks, GiveTheSameBytesAsOneRead) {
  EXPECT_TRUE(ReadInRequests(*matrix_) == expected_);
  EXPECT_TRUE(ReadAll(*matrix_) == expected_);
}

TEST_F(Blocks, ReadTheirSourceOnceIfReadInOrder) {
  ReadInRequests(*matrix_);
  EXPECT_EQ(memory_->bytes, stored_.size());
}

TEST_F(Blocks, TakeNoMemoryOnceTheyHaveBeenRead) {
  ReadString(*matrix_, 0, 1000);
  EXPECT_GT(blocks_->used(), 0U);
  ReadString(*matrix_, 1000, matrix_->size() - 1000);
  EXPECT_EQ(blocks_->used(), 0U);
}

TEST_F(Blocks, AreNotMadeForAReadThatIsCheaperAlone) {
  ReadString(*matrix_, matrix_->size() / 2, 1024);
  EXPECT_EQ(blocks_->used(), 0U);
  EXPECT_THAT(memory_->bytes, Lt(stored_.size() / 8));
}

TEST_F(Blocks, AreMadeForTheSecondReadThatIsNear) {
  ReadString(*matrix_, matrix_->size() / 2, 1024);
  ReadString(*matrix_, matrix_->size() / 2 + 8192, 1024);
  EXPECT_GT(blocks_->used(), 0U);
  const uint64_t reads = memory_->reads;
  EXPECT_EQ(ReadString(*matrix_, matrix_->size() / 2 + 4096, 1024),
            expected_.substr(expected_.size() / 2 + 4096, 1024));
  EXPECT_EQ(memory_->reads, reads);
}

TEST_F(Blocks, AreNotMadeForContiguousRows) {
  const auto rows = MakeStrided(
      Whole(memory_),
      {.dtype = Dtype::kFloat32, .shape = {kRows, kColumns - 1}, .stride = {kColumns, 1}}, blocks_);
  ReadString(*rows, 0, 4096);
  EXPECT_EQ(blocks_->used(), 0U);
  EXPECT_THAT(memory_->bytes, Lt(8192U));
}

TEST_F(Blocks, AreReadByManyAtOnce) {
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> readers;
    for (uint64_t reader = 0; reader < 8; ++reader) {
      readers.emplace_back([&, reader] {
        std::mt19937_64 random(reader);
        for (int i = 0; i < 100; ++i) {
          const uint64_t length = random() % 200'000;
          const uint64_t begin = random() % (expected_.size() - length);
          if (ReadString(*matrix_, begin, length) != expected_.substr(begin, length)) ++wrong;
        }
      });
    }
  }
  EXPECT_EQ(wrong, 0);
}

TEST_F(Blocks, AreFilledOnceForAllWaiters) {
  {
    std::vector<std::jthread> readers;
    for (uint64_t i = 0; i < 8; ++i) {
      readers.emplace_back([&, i] { ReadString(*matrix_, i * 1000, 1000); });
    }
  }
  EXPECT_THAT(memory_->bytes, Lt(stored_.size() / 2));
}

TEST_F(Blocks, AreMadeAgainIfTheirSourceFailed) {
  memory_->failures = 1;
  EXPECT_THAT([&] { ReadString(*matrix_, 0, 10); }, ThrowsMessage<Error>("connection reset"));
  EXPECT_EQ(blocks_->used(), 0U);
  EXPECT_EQ(ReadString(*matrix_, 0, 10), expected_.substr(0, 10));
}

TEST_F(Blocks, OfTwoTensorsAreDifferentOnes) {
  const auto other_bytes = std::make_shared<MemorySource>(std::string(stored_.size(), 'x'));
  const auto other = MakeStrided(Whole(other_bytes), Transposed(kRows, kColumns), blocks_);
  ReadString(*matrix_, 0, 10);
  EXPECT_EQ(ReadString(*other, 0, 10), "xxxxxxxxxx");
}

TEST(BlockCache, StaysWithinItsCapacity) {
  BlockCache cache(3 * kMiB);
  const uint64_t owner = cache.NewOwner();
  const auto read = [&](uint64_t index) {
    std::array<std::byte, 1> byte = {};
    EXPECT_TRUE(cache.Read({owner, index}, kMiB, 5, byte, [&](std::span<std::byte> block) {
      std::ranges::fill(block, static_cast<std::byte>(index));
    }));
    return std::to_integer<uint64_t>(byte[0]);
  };
  EXPECT_EQ(read(1), 1U);
  EXPECT_EQ(read(2), 2U);
  EXPECT_EQ(read(3), 3U);
  EXPECT_EQ(cache.used(), 3 * kMiB);
  EXPECT_EQ(read(4), 4U);
  EXPECT_EQ(cache.used(), 3 * kMiB);
}

TEST(BlockCache, ForgetsWhatWasNotUsedForLongest) {
  BlockCache cache(2 * kMiB);
  const uint64_t owner = cache.NewOwner();
  std::array<std::byte, 1> byte = {};
  std::vector<uint64_t> filled;
  const auto read = [&](uint64_t index) {
    cache.Read({owner, index}, kMiB, 0, byte,
               [&](std::span<std::byte> /*block*/) { filled.push_back(index); });
  };
  read(1);
  read(2);
  read(1);
  read(3);
  read(1);
  read(2);
  EXPECT_THAT(filled, ElementsAre(1, 2, 3, 2));
}

TEST(BlockCache, RefusesABlockThatIsLargerThanItself) {
  BlockCache cache(kMiB);
  std::array<std::byte, 1> byte = {};
  EXPECT_FALSE(cache.Read({cache.NewOwner(), 0}, kMiB + 1, 0, byte,
                          [](std::span<std::byte> /*block*/) { FAIL(); }));
}

TEST(BlockCache, RefusesABlockWhileAllItsMemoryIsInUse) {
  BlockCache cache(kMiB);
  const uint64_t owner = cache.NewOwner();
  std::array<std::byte, 1> byte = {};
  const auto nothing = [](std::span<std::byte> /*block*/) {};
  EXPECT_TRUE(cache.Read({owner, 0}, kMiB, 0, byte, [&](std::span<std::byte> /*block*/) {
    EXPECT_FALSE(cache.Read({owner, 1}, kMiB, 0, byte, nothing));
  }));
  EXPECT_TRUE(cache.Read({owner, 1}, kMiB, 0, byte, nothing));
}

TEST(BlockCache, MakesNothingWithoutAFill) {
  BlockCache cache;
  const uint64_t owner = cache.NewOwner();
  std::array<std::byte, 1> byte = {};
  EXPECT_FALSE(cache.Read({owner, 0}, 10, 0, byte, nullptr));
  EXPECT_TRUE(cache.Read({owner, 0}, 10, 0, byte, [](std::span<std::byte> block) {
    std::ranges::fill(block, std::byte{7});
  }));
  EXPECT_TRUE(cache.Read({owner, 0}, 10, 0, byte, nullptr));
  EXPECT_EQ(byte[0], std::byte{7});
}

}  // namespace
}  // namespace ckptfs
