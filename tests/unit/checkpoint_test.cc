// Checkpoints: types of elements, sizes in bytes, and the invariants of Validate.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "parser/base/dtype.h"
#include "parser/base/error.h"
#include "parser/checkpoint.h"
#include "parser/io/simple_sources.h"
#include "tests/support/errors.h"

namespace ckptfs {
namespace {

using testing::ThrowsMessage;

constexpr uint64_t kHuge = uint64_t{1} << 62;

TEST(Dtype, IsFoundByItsName) {
  EXPECT_EQ(DtypeNamed("float32"), Dtype::kFloat32);
  EXPECT_EQ(DtypeNamed("bits4x2"), Dtype::kBits4x2);
}

TEST(Dtype, IsFoundByItsAlias) {
  EXPECT_EQ(DtypeNamed("half"), Dtype::kFloat16);
  EXPECT_EQ(DtypeNamed("long"), Dtype::kInt64);
  EXPECT_EQ(DtypeNamed("cdouble"), Dtype::kComplex128);
}

TEST(Dtype, IsEmptyForAnUnknownName) {
  EXPECT_EQ(DtypeNamed("float3"), std::nullopt);
  EXPECT_EQ(DtypeNamed(""), std::nullopt);
  EXPECT_EQ(DtypeNamed("opaque"), std::nullopt);
}

// A row for each type: PyTorch's name, bytes, elements in them, bytes that a swap turns.
struct DtypeRow {
  std::string_view name;
  unsigned item_size;
  unsigned elements = 1;
  unsigned swap_size = item_size;
};

class EachDtype : public testing::TestWithParam<DtypeRow> {};

TEST_P(EachDtype, IsAsInPyTorch) {
  const auto dtype = DtypeNamed(GetParam().name);
  ASSERT_TRUE(dtype.has_value());
  EXPECT_EQ(Name(*dtype), GetParam().name);
  EXPECT_EQ(ItemSize(*dtype), GetParam().item_size);
  EXPECT_EQ(ElementsPerItem(*dtype), GetParam().elements);
  EXPECT_EQ(SwapSize(*dtype), GetParam().swap_size);
}

INSTANTIATE_TEST_SUITE_P(
    OfPyTorch, EachDtype,
    testing::Values(DtypeRow{"bool", 1}, DtypeRow{"uint8", 1}, DtypeRow{"int8", 1},
                    DtypeRow{"uint16", 2}, DtypeRow{"int16", 2}, DtypeRow{"uint32", 4},
                    DtypeRow{"int32", 4}, DtypeRow{"uint64", 8}, DtypeRow{"int64", 8},
                    DtypeRow{"float16", 2}, DtypeRow{"bfloat16", 2}, DtypeRow{"float32", 4},
                    DtypeRow{"float64", 8}, DtypeRow{"complex32", 4, 1, 2},
                    DtypeRow{"complex64", 8, 1, 4}, DtypeRow{"complex128", 16, 1, 8},
                    DtypeRow{"float8_e4m3fn", 1}, DtypeRow{"float8_e5m2", 1},
                    DtypeRow{"float8_e4m3fnuz", 1}, DtypeRow{"float8_e5m2fnuz", 1},
                    DtypeRow{"float8_e8m0fnu", 1}, DtypeRow{"float4_e2m1fn_x2", 1},
                    DtypeRow{"qint8", 1}, DtypeRow{"quint8", 1}, DtypeRow{"qint32", 4},
                    DtypeRow{"quint4x2", 1, 2}, DtypeRow{"quint2x4", 1, 4}, DtypeRow{"bits8", 1},
                    DtypeRow{"bits16", 2}, DtypeRow{"bits1x8", 1}, DtypeRow{"bits2x4", 1},
                    DtypeRow{"bits4x2", 1}),
    [](const auto& row) { return std::string(row.param.name); });

TEST(ByteSize, IsThatOfTheElements) { EXPECT_EQ(ByteSize(Dtype::kFloat32, {2, 3}), 24U); }

TEST(ByteSize, IsThatOfOneElementForAScalar) { EXPECT_EQ(ByteSize(Dtype::kInt64, {}), 8U); }

TEST(ByteSize, IsNothingWithoutElements) {
  EXPECT_EQ(ByteSize(Dtype::kInt64, {0}), 0U);
  EXPECT_EQ(ByteSize(Dtype::kInt64, {3, 0, 5}), 0U);
}

TEST(ByteSize, BeginsEachRowOfPackedElementsOnAByte) {
  EXPECT_EQ(ByteSize(Dtype::kQuint4x2, {3, 4}), 6U);
  EXPECT_EQ(ByteSize(Dtype::kQuint4x2, {3, 5}), 9U);
  EXPECT_EQ(ByteSize(Dtype::kQuint2x4, {2, 5}), 4U);
  EXPECT_EQ(ByteSize(Dtype::kQuint2x4, {}), 1U);
}

TEST(ByteSize, MayBeAlmostTwoToThe63) {
  EXPECT_EQ(ByteSize(Dtype::kUint8, {std::numeric_limits<int64_t>::max()}),
            uint64_t{std::numeric_limits<int64_t>::max()});
}

TEST(ByteSize, RefusesMore) {
  const auto* const message = "its shape needs more than 2^63 bytes";
  EXPECT_THAT([] { ByteSize(Dtype::kUint8, {uint64_t{1} << 63}); }, ThrowsMessage<Error>(message));
  EXPECT_THAT([] { ByteSize(Dtype::kInt16, {kHuge}); }, ThrowsMessage<Error>(message));
  EXPECT_THAT([] { ByteSize(Dtype::kInt8, {kHuge, kHuge, 16}); }, ThrowsMessage<Error>(message));
  EXPECT_EQ(CodeOf([] { ByteSize(Dtype::kInt16, {kHuge}); }), EOVERFLOW);
}

// A tensor of bytes in a source of 10.
Tensor TensorAt(uint64_t offset, uint64_t length) {
  Tensor tensor{.dtype = Dtype::kUint8, .shape = {length}};
  tensor.data = {std::make_shared<MemorySource>("0123456789"), offset, length};
  return tensor;
}

Checkpoint With(Tensor tensor) {
  Checkpoint checkpoint;
  checkpoint.root.members.push_back({{"w"}, std::move(tensor)});
  return checkpoint;
}

TEST(Validate, AcceptsATensorThatEndsWithItsSource) {
  EXPECT_NO_THROW(Validate(With(TensorAt(4, 6))));
}

TEST(Validate, AcceptsATensorWithoutElementsAtTheEnd) {
  EXPECT_NO_THROW(Validate(With(TensorAt(10, 0))));
}

TEST(Validate, RejectsATensorThatEndsAfterItsSource) {
  EXPECT_THAT([] { Validate(With(TensorAt(4, 7))); },
              ThrowsMessage<Error>(
                  "tensor 'w': data out of range: 7 bytes at byte 4 (memory has 10 bytes)"));
}

TEST(Validate, RejectsATensorThatBeginsAfterItsSource) {
  EXPECT_THAT([] { Validate(With(TensorAt(~uint64_t{0}, 1))); },
              ThrowsMessage<Error>("tensor 'w': data out of range: 1 bytes at byte "
                                   "18446744073709551615 (memory has 10 bytes)"));
}

TEST(Validate, RejectsANestedTensorWhoseShapesAreNoMatrix) {
  Tensor tensor = TensorAt(0, 2);
  tensor.sizes = std::make_shared<const Tensor>(TensorAt(0, 8));
  EXPECT_THAT([&] { Validate(With(std::move(tensor))); },
              ThrowsMessage<Error>("tensor 'w': nested shapes: not a matrix of int64"));
}

TEST(Validate, RejectsATensorThatHasOtherBytesThanItNeeds) {
  Tensor tensor = TensorAt(0, 8);
  tensor.shape = {3};
  EXPECT_THAT(
      [&] { Validate(With(std::move(tensor))); },
      ThrowsMessage<Error>("tensor 'w': size mismatch (found 8 bytes, dtype and shape need 3)"));
}

TEST(Validate, RejectsATensorOfTooManyDimensions) {
  Tensor tensor = TensorAt(0, 1);
  tensor.shape.assign(65, 1);
  EXPECT_THAT([&] { Validate(With(std::move(tensor))); },
              ThrowsMessage<Error>("tensor 'w': too many dimensions (found 65, maximum 64)"));
}

TEST(Validate, AcceptsATensorOfAllDimensionsThatThereMayBe) {
  Tensor tensor = TensorAt(0, 1);
  tensor.shape.assign(64, 1);
  EXPECT_NO_THROW(Validate(With(std::move(tensor))));
}

TEST(Validate, NeedsNoSourceOfATensorThatHasAnError) {
  Tensor tensor{.dtype = Dtype::kFloat32, .shape = {3}};
  tensor.data.length = 12;
  tensor.error.emplace(EIO, "data/0 is not there");
  EXPECT_NO_THROW(Validate(With(std::move(tensor))));
}

TEST(Validate, WantsTheLengthOfATensorThatHasAnError) {
  Tensor tensor{.dtype = Dtype::kFloat32, .shape = {3}};
  tensor.error.emplace(EIO, "data/0 is not there");
  EXPECT_THAT(
      [&] { Validate(With(std::move(tensor))); },
      ThrowsMessage<Error>("tensor 'w': size mismatch (found 0 bytes, dtype and shape need 12)"));
}

TEST(Validate, LooksIntoGroups) {
  auto group = std::make_unique<Group>();
  group->members.push_back({{"in\nner"}, TensorAt(4, 7)});
  Checkpoint checkpoint;
  checkpoint.root.members.push_back({{"v"}, Value{.json = "1"}});
  checkpoint.root.members.push_back({{"g"}, std::move(group)});
  EXPECT_THAT([&] { Validate(checkpoint); },
              ThrowsMessage<Error>(
                  "tensor 'in?ner': data out of range: 7 bytes at byte 4 (memory has 10 bytes)"));
}

}  // namespace
}  // namespace ckptfs
