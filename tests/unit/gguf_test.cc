#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "parser/base/error.h"
#include "parser/checkpoint.h"
#include "parser/detect.h"
#include "parser/format/gguf/file.h"
#include "parser/format/gguf/header.h"
#include "parser/io/simple_sources.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/reading.h"
#include "tests/support/sources.h"

namespace ckptfs {
namespace {

using std::string_literals::operator""s;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

constexpr uint32_t kF32 = 0;
constexpr uint32_t kQ40 = 2;
constexpr uint32_t kI8 = 24;

// Types of values.
constexpr uint32_t kUint32 = 4;
constexpr uint32_t kInt32 = 5;
constexpr uint32_t kBool = 7;
constexpr uint32_t kArray = 9;
constexpr uint32_t kUint64 = 10;

Checkpoint ReadFile(const std::string& file) {
  return ReadCheckpoint(std::make_shared<MemorySource>(file));
}

// Returns the error of a file, without its name.
std::string Refusal(const std::string& file) try {
  ReadFile(file);
  return "no error";
} catch (const Error& e) {
  return std::string(e.what()).substr(std::string_view("memory: ").size());
}

int CodeOf(const std::string& file) try {
  ReadFile(file);
  return 0;
} catch (const Error& e) {
  return e.code();
}

const Tensor& TensorAt(const Checkpoint& checkpoint, size_t i) {
  return std::get<Tensor>(checkpoint.root.members.at(i).content);
}

std::string AnnotationOf(const std::vector<Annotation>& annotations, std::string_view name) {
  const auto found = std::ranges::find(annotations, name, &Annotation::first);
  return found == annotations.end() ? "none" : found->second;
}

std::string MetadataOf(const Checkpoint& checkpoint) {
  return AnnotationOf(checkpoint.annotations, "metadata");
}

std::string TypesOf(const Checkpoint& checkpoint) {
  return AnnotationOf(checkpoint.annotations, "metadata_types");
}

// A writer of one tensor of four bytes.
GgufWriter OneTensor() { return GgufWriter().Tensor("w", {4}, kI8, 0); }

// The header.

TEST(Gguf, ReadsATensorWithItsTypeAndShape) {
  const Checkpoint checkpoint =
      ReadFile(GgufWriter().Tensor("w", {3, 2}, kF32, 0).File("0123456789abcdef01234567"));
  const Tensor& tensor = TensorAt(checkpoint, 0);
  EXPECT_EQ(checkpoint.format, "gguf");
  EXPECT_EQ(checkpoint.root.members.at(0).key.text, "w");
  EXPECT_EQ(tensor.dtype, Dtype::kFloat32);
  EXPECT_THAT(tensor.shape, ElementsAre(2, 3));
  EXPECT_EQ(ReadString(tensor.data), "0123456789abcdef01234567");
  EXPECT_TRUE(tensor.is_in_file);
  EXPECT_EQ(tensor.file_offset, 96U);
  EXPECT_THAT(tensor.annotations, ElementsAre(Pair("ggml_type", "\"F32\""), Pair("dims", "[3,2]")));
}

TEST(Gguf, ReadsVersionByteOrderAndAlignment) {
  EXPECT_THAT(
      ReadFile(GgufWriter().File("")).annotations,
      ElementsAre(Pair("gguf_version", "3"), Pair("byte_order", "\"little\""),
                  Pair("alignment", "32"), Pair("metadata", "{}"), Pair("metadata_types", "{}")));
}

TEST(Gguf, ReadsAFileOfNothing) {
  const std::string file = GgufWriter().File("");
  EXPECT_EQ(file.size(), 24U);
  EXPECT_THAT(ReadFile(file).root.members, IsEmpty());
}

TEST(Gguf, ReadsVersion1WithItsCountsOf32Bits) {
  GgufWriter writer(1);
  writer.Pair("a", "x").Pair("b", kArray, writer.Array(kUint32, 1) + writer.Number(7U));
  const Checkpoint checkpoint = ReadFile(writer.Tensor("w", {2, 2}, kI8, 0).File("abcd"));
  EXPECT_EQ(MetadataOf(checkpoint), R"({"a":"x","b":[7]})");
  EXPECT_THAT(TensorAt(checkpoint, 0).shape, ElementsAre(2, 2));
  EXPECT_EQ(ReadString(TensorAt(checkpoint, 0).data), "abcd");
}

TEST(Gguf, ReadsVersion2) {
  EXPECT_EQ(
      ReadString(TensorAt(ReadFile(GgufWriter(2).Tensor("w", {4}, kI8, 0).File("abcd")), 0).data),
      "abcd");
}

TEST(Gguf, RefusesVersion0) {
  EXPECT_EQ(Refusal(GgufWriter(0).File("")), "unsupported version 0 (supported: 1 to 3)");
}

TEST(Gguf, RefusesAFutureVersion) {
  EXPECT_EQ(Refusal(GgufWriter(4).File("")), "unsupported version 4 (supported: 1 to 3)");
  EXPECT_EQ(CodeOf(GgufWriter(4).File("")), ENOTSUP);
}

TEST(Gguf, RefusesAnotherMagic) {
  std::string file = GgufWriter(3, true).File("");
  file.replace(0, 4, "FUGG");
  EXPECT_EQ(Refusal(file), "not a checkpoint in a supported format");
}

TEST(Gguf, RefusesAFileThatEndsInItsCounts) {
  EXPECT_EQ(Refusal(GgufWriter().File("").substr(0, 20)),
            "header at byte 16: number of pairs needs 8 bytes, but only 4 are left");
}

TEST(Gguf, RefusesAFileOfTheMagicAlone) {
  EXPECT_EQ(Refusal("GGUF"), "header at byte 4: version needs 4 bytes, but only 0 are left");
}

TEST(Gguf, RefusesMinusOneTensors) {
  EXPECT_EQ(Refusal(GgufWriter().Header(UINT64_MAX, 0)),
            "has 18446744073709551615 tensors (maximum 2000000)");
}

TEST(Gguf, RefusesMoreTensorsThanTheFileHasRoomFor) {
  EXPECT_EQ(Refusal(GgufWriter().Header(1'000'000, 0) + std::string(100, '\0')),
            "header at byte 24: has 1000000 tensors, but the 100 bytes that are left have room "
            "for 4");
}

TEST(Gguf, RefusesMinusOnePairs) {
  EXPECT_EQ(Refusal(GgufWriter().Header(0, UINT64_MAX)),
            "header at byte 24: has 18446744073709551615 pairs of metadata, but the 0 bytes that "
            "are left have room for 0");
}

TEST(Gguf, RefusesTensorsThatMetadataLeavesNoRoomFor) {
  GgufWriter writer;
  writer.Pair("a", std::string(100, 'x'));
  EXPECT_EQ(Refusal(writer.Header(3, 1)),
            "header at byte 145: has 3 tensors, but the 0 bytes that are left have room for 0");
}

// Pairs.

TEST(Gguf, ReadsEveryTypeOfMetadata) {
  GgufWriter writer;
  writer.Pair("u8", 0, "\xff").Pair("i8", 1, "\x80");
  writer.Pair("u16", 2, writer.Number(uint16_t{65535}));
  writer.Pair("i16", 3, writer.Number(int16_t{-32768}));
  writer.Pair("u32", 4, writer.Number(uint32_t{4294967295}));
  writer.Pair("i32", 5, writer.Number(std::numeric_limits<int32_t>::min()));
  writer.Pair("f32", 6, writer.Number(0.1F)).Pair("bool", 7, "\1").Pair("string", "text");
  writer.Pair("u64", 10, writer.Number(UINT64_MAX));
  writer.Pair("i64", 11, writer.Number(std::numeric_limits<int64_t>::min()));
  writer.Pair("f64", 12, writer.Number(0.1));
  const Checkpoint checkpoint = ReadFile(writer.File(""));
  EXPECT_EQ(MetadataOf(checkpoint),
            R"({"u8":255,"i8":-128,"u16":65535,"i16":-32768,"u32":4294967295,)"
            R"("i32":-2147483648,"f32":0.10000000149011612,"bool":true,"string":"text",)"
            R"("u64":18446744073709551615,"i64":-9223372036854775808,"f64":0.1})");
  EXPECT_EQ(TypesOf(checkpoint),
            R"({"u8":"u8","i8":"i8","u16":"u16","i16":"i16","u32":"u32","i32":"i32",)"
            R"("f32":"f32","u64":"u64","i64":"i64","f64":"f64"})");
}

TEST(Gguf, ReadsNumbersThatJsonDoesNotHaveAsTexts) {
  GgufWriter writer;
  writer.Pair("nan", 6, writer.Number(std::numeric_limits<float>::quiet_NaN()));
  writer.Pair("inf", 12, writer.Number(-std::numeric_limits<double>::infinity()));
  EXPECT_EQ(MetadataOf(ReadFile(writer.File(""))), R"({"nan":"NaN","inf":"-Infinity"})");
}

TEST(Gguf, ReadsArraysWithTheTypeOfTheirElements) {
  GgufWriter writer;
  writer.Pair("a", kArray, writer.Array(kInt32, 2) + writer.Number(-1) + writer.Number(2));
  writer.Pair("b", kArray, writer.Array(8, 2) + writer.Text("x") + writer.Text(""));
  writer.Pair("c", kArray, writer.Array(kBool, 2) + "\1\0"s);
  writer.Pair("d", kArray, writer.Array(kUint32, 0));
  const Checkpoint checkpoint = ReadFile(writer.File(""));
  EXPECT_EQ(MetadataOf(checkpoint), R"({"a":[-1,2],"b":["x",""],"c":[true,false],"d":[]})");
  EXPECT_EQ(TypesOf(checkpoint), R"({"a":"[i32]","b":"[string]","c":"[bool]","d":"[u32]"})");
}

TEST(Gguf, ReadsArraysOfArrays) {
  GgufWriter writer;
  writer.Pair("a", kArray,
              writer.Array(kArray, 2) + writer.Array(kInt32, 1) + writer.Number(1) +
                  writer.Array(8, 1) + writer.Text("x"));
  writer.Pair("b", kArray, writer.Array(kArray, 0));
  const Checkpoint checkpoint = ReadFile(writer.File(""));
  EXPECT_EQ(MetadataOf(checkpoint), R"({"a":[[1],["x"]],"b":[]})");
  EXPECT_EQ(TypesOf(checkpoint), R"({"a":"[[i32],[string]]","b":"[array]"})");
}

TEST(Gguf, RefusesArraysThatAreFiveDeep) {
  GgufWriter writer;
  std::string value;
  for (int i = 0; i < 4; ++i) value += writer.Array(kArray, 1);
  EXPECT_EQ(Refusal(GgufWriter().Pair("a", kArray, value + writer.Array(0, 0)).File("")),
            "metadata 'a': has arrays more than 4 deep");
  const std::string four = value.substr(writer.Array(kArray, 1).size()) + writer.Array(0, 0);
  EXPECT_EQ(MetadataOf(ReadFile(GgufWriter().Pair("a", kArray, four).File(""))),
            R"({"a":[[[[]]]]})");
}

TEST(Gguf, KeepsTextsThatAreNoUtf8AsHex) {
  EXPECT_EQ(MetadataOf(ReadFile(GgufWriter().Pair("a", "\xff\xfe\0z"s).File(""))),
            R"({"a":{"$bytes":"fffe007a"}})");
}

TEST(Gguf, KeepsNulInTexts) {
  EXPECT_EQ(MetadataOf(ReadFile(GgufWriter().Pair("a", "x\0y"s).File(""))), R"({"a":"x\u0000y"})");
}

TEST(Gguf, KeepsKeysThatAreNoUtf8AndThoseThatLookLikeThem) {
  EXPECT_EQ(MetadataOf(ReadFile(GgufWriter().Pair("\xff", "x").Pair("$bytes:ff", "y").File(""))),
            R"({"$bytes:ff":"x","$bytes:2462797465733a6666":"y"})");
}

TEST(Gguf, KeepsOddKeys) {
  EXPECT_EQ(MetadataOf(ReadFile(GgufWriter().Pair("G\xc3\xa9n KEY/\n", "x").File(""))),
            R"({"G\u00e9n KEY/\n":"x"})");
}

TEST(Gguf, TakesEveryBoolButZeroForTrue) {
  EXPECT_EQ(MetadataOf(ReadFile(GgufWriter().Pair("a", kBool, "\2").File(""))), R"({"a":true})");
}

TEST(Gguf, RefusesAKeyOfTerabytes) {
  GgufWriter writer;
  EXPECT_EQ(Refusal(writer.Header(0, 1) + writer.Number(uint64_t{1} << 40U) + "xxxxxx"),
            "header at byte 24: key has 1099511627776 bytes (maximum 65535)");
}

TEST(Gguf, RefusesAKeyBeyondTheFile) {
  GgufWriter writer;
  EXPECT_EQ(Refusal(writer.Header(0, 1) + writer.Number(uint64_t{100}) + "xxxxxx"),
            "header at byte 32: key needs 100 bytes, but only 6 are left");
}

TEST(Gguf, RefusesAnEmptyKey) {
  EXPECT_EQ(Refusal(GgufWriter().Pair("", "x").File("")), "header at byte 24: a key is empty");
}

TEST(Gguf, RefusesAKeyThatOccursTwice) {
  EXPECT_EQ(Refusal(GgufWriter().Pair("a", "x").Pair("a", "y").File("")),
            "metadata 'a': occurs twice");
}

TEST(Gguf, RefusesAnUnknownTypeOfAValue) {
  EXPECT_EQ(Refusal(GgufWriter().Pair("a", 13, "12345678").File("")),
            "metadata 'a': header at byte 33: type of a value is 13, but 0 to 12 are known");
}

TEST(Gguf, RefusesAnUnknownTypeOfElementsEvenOfAnEmptyArray) {
  GgufWriter writer;
  EXPECT_EQ(Refusal(writer.Pair("a", kArray, writer.Array(77, 0)).File("")),
            "metadata 'a': header at byte 37: type of elements is 77, but 0 to 12 are known");
}

TEST(Gguf, RefusesATextOfMoreThanAGibibyte) {
  GgufWriter writer;
  EXPECT_EQ(Refusal(writer.Pair("a", 8, writer.Number((uint64_t{1} << 30U) + 1)).File("")),
            "metadata 'a': header at byte 37: text has 1073741825 bytes (maximum 1073741824)");
}

TEST(Gguf, RefusesAnArrayOfMoreThanAGibi) {
  GgufWriter writer;
  EXPECT_EQ(Refusal(writer.Pair("a", kArray, writer.Array(0, (uint64_t{1} << 30U) + 1)).File("")),
            "metadata 'a': has 1073741825 elements (maximum 1073741824)");
}

TEST(Gguf, RefusesAnArrayThatTheFileHasNoRoomFor) {
  GgufWriter writer;
  EXPECT_EQ(
      Refusal(writer.Pair("a", kArray, writer.Array(kUint64, 3) + std::string(16, 'x')).File("")),
      "metadata 'a': header at byte 49: has 3 elements, but the 16 bytes that are left have room "
      "for 2");
}

TEST(Gguf, CountsTheLengthOfEachTextInAnArray) {
  GgufWriter writer;
  EXPECT_EQ(Refusal(writer.Pair("a", kArray, writer.Array(8, 3) + std::string(16, '\0')).File("")),
            "metadata 'a': header at byte 49: has 3 elements, but the 16 bytes that are left have "
            "room for 2");
}

TEST(Gguf, RefusesAnAlignmentThatIsNoPowerOfTwo) {
  EXPECT_EQ(Refusal(OneTensor().Alignment(13).File("abcd")),
            "metadata 'general.alignment': is 13, but must be a power of two, 1073741824 at most");
}

TEST(Gguf, RefusesAnAlignmentOf0) {
  GgufWriter writer;
  writer.Pair("general.alignment", kUint32, writer.Number(0U));
  EXPECT_EQ(Refusal(writer.File("")),
            "metadata 'general.alignment': is 0, but must be a power of two, 1073741824 at most");
}

TEST(Gguf, RefusesAnAlignmentOfTwoGibibytes) {
  EXPECT_EQ(Refusal(GgufWriter().Alignment(uint32_t{1} << 31U).File("")),
            "metadata 'general.alignment': is 2147483648, but must be a power of two, 1073741824 "
            "at most");
}

TEST(Gguf, RefusesAnAlignmentOfAnotherType) {
  GgufWriter writer;
  EXPECT_EQ(Refusal(writer.Pair("general.alignment", kInt32, writer.Number(32)).File("")),
            "metadata 'general.alignment': is of type i32, but must be u32");
  EXPECT_EQ(Refusal(GgufWriter().Pair("general.alignment", "32").File("")),
            "metadata 'general.alignment': is of type string, but must be u32");
}

// Entries of tensors.

TEST(Gguf, ReadsATensorWithoutDimensions) {
  const Checkpoint checkpoint = ReadFile(GgufWriter().Tensor("w", {}, kF32, 0).File("abcd"));
  EXPECT_THAT(TensorAt(checkpoint, 0).shape, IsEmpty());
  EXPECT_EQ(ReadString(TensorAt(checkpoint, 0).data), "abcd");
}

TEST(Gguf, ReadsEightDimensions) {
  const Checkpoint checkpoint =
      ReadFile(GgufWriter().Tensor("w", {1, 2, 1, 1, 1, 1, 1, 2}, kI8, 0).File("abcd"));
  EXPECT_THAT(TensorAt(checkpoint, 0).shape, ElementsAre(2, 1, 1, 1, 1, 1, 2, 1));
}

TEST(Gguf, RefusesNineDimensions) {
  EXPECT_EQ(Refusal(GgufWriter().Tensor("w", {1, 1, 1, 1, 1, 1, 1, 1, 4}, kI8, 0).File("abcd")),
            "tensor 'w': too many dimensions (found 9, maximum 8)");
}

TEST(Gguf, RefusesANegativeDimension) {
  EXPECT_EQ(Refusal(GgufWriter().Tensor("w", {UINT64_MAX}, kI8, 0).File("")),
            "tensor 'w': has a dimension of 18446744073709551615 (maximum 9223372036854775807)");
}

TEST(Gguf, RefusesAShapeWhoseElementsOverflow) {
  EXPECT_EQ(Refusal(GgufWriter().Tensor("w", {uint64_t{1} << 62U, 2}, kI8, 0).File("")),
            "tensor 'w': has a shape of 2^63 elements or more");
  EXPECT_EQ(
      Refusal(GgufWriter().Tensor("w", {uint64_t{1} << 62U, uint64_t{1} << 62U}, kI8, 0).File("")),
      "tensor 'w': has a shape of 2^63 elements or more");
}

TEST(Gguf, RefusesAShapeWhoseBytesOverflow) {
  EXPECT_EQ(Refusal(GgufWriter().Tensor("w", {uint64_t{1} << 62U}, kF32, 0).File("")),
            "tensor 'w': its shape needs 2^63 bytes or more");
}

TEST(Gguf, ReadsATensorWithoutElementsWhateverItsOtherDimensions) {
  const uint64_t large = uint64_t{1} << 62U;
  const Checkpoint checkpoint =
      ReadFile(GgufWriter().Tensor("w", {large, 0, large}, kF32, 0).File(""));
  EXPECT_THAT(TensorAt(checkpoint, 0).shape, ElementsAre(large, 0, large));
  EXPECT_EQ(TensorAt(checkpoint, 0).data.length, 0U);
}

TEST(Gguf, ReadsNamesOf64BytesAndMore) {
  const std::string name(65'535, 'n');
  const Checkpoint checkpoint = ReadFile(GgufWriter().Tensor(name, {4}, kI8, 0).File("abcd"));
  EXPECT_EQ(checkpoint.root.members.at(0).key.text, name);
}

TEST(Gguf, RefusesANameOf65536Bytes) {
  EXPECT_EQ(Refusal(GgufWriter().Tensor(std::string(65'536, 'n'), {4}, kI8, 0).File("abcd")),
            "header at byte 24: name of a tensor has 65536 bytes (maximum 65535)");
}

TEST(Gguf, ReadsAnEmptyNameAndOneWithNul) {
  const Checkpoint checkpoint = ReadFile(GgufWriter()
                                             .Tensor("", {1}, kI8, 0)
                                             .Tensor("a\0b"s, {1}, kI8, 32)
                                             .File(std::string(33, 'x')));
  EXPECT_EQ(checkpoint.root.members.at(0).key.text, "");
  EXPECT_EQ(checkpoint.root.members.at(1).key.text, "a\0b"s);
}

TEST(Gguf, RefusesANameThatOccursTwice) {
  EXPECT_EQ(Refusal(OneTensor().Tensor("w", {4}, kI8, 32).File(std::string(64, 'x'))),
            "tensor 'w': occurs twice");
}

// Types.

TEST(Gguf, ShowsBlocksAsRowsOfBytes) {
  const std::string data(size_t{3} * 36, 'q');
  const Checkpoint checkpoint = ReadFile(GgufWriter().Tensor("w", {64, 3}, kQ40, 0).File(data));
  const Tensor& tensor = TensorAt(checkpoint, 0);
  EXPECT_EQ(tensor.dtype, Dtype::kOpaque);
  EXPECT_EQ(tensor.foreign_dtype, "Q4_0");
  EXPECT_THAT(tensor.shape, ElementsAre(3, 36));
  EXPECT_EQ(ReadString(tensor.data), data);
  EXPECT_THAT(tensor.annotations,
              ElementsAre(Pair("ggml_type", "\"Q4_0\""), Pair("dims", "[64,3]"),
                          Pair("logical_shape", "[3,64]"), Pair("block_elements", "32"),
                          Pair("block_bytes", "18")));
}

TEST(Gguf, KnowsTheSizesOfAllTypes) {
  std::string known;
  for (uint32_t number = 0; number < 50; ++number) {
    const auto* type = gguf::StoredTypeOf(number);
    if (type == nullptr) continue;
    known += fmt::format("{} {} {}/{}\n", number, type->name, type->elements, type->bytes);
  }
  EXPECT_EQ(known, R"(0 F32 1/4
1 F16 1/2
2 Q4_0 32/18
3 Q4_1 32/20
6 Q5_0 32/22
7 Q5_1 32/24
8 Q8_0 32/34
9 Q8_1 32/36
10 Q2_K 256/84
11 Q3_K 256/110
12 Q4_K 256/144
13 Q5_K 256/176
14 Q6_K 256/210
15 Q8_K 256/292
16 IQ2_XXS 256/66
17 IQ2_XS 256/74
18 IQ3_XXS 256/98
19 IQ1_S 256/50
20 IQ4_NL 32/18
21 IQ3_S 256/110
22 IQ2_S 256/82
23 IQ4_XS 256/136
24 I8 1/1
25 I16 1/2
26 I32 1/4
27 I64 1/8
28 F64 1/8
29 IQ1_M 256/56
30 BF16 1/2
34 TQ1_0 256/54
35 TQ2_0 256/66
39 MXFP4 32/17
40 NVFP4 64/36
41 Q1_0 128/18
42 Q2_0 64/18
)");
}

TEST(Gguf, LosesATensorWhoseRowsAreNoWholeBlocksAndNoOther) {
  const Checkpoint checkpoint =
      ReadFile(GgufWriter().Tensor("bad", {48}, kQ40, 32).Tensor("w", {4}, kI8, 0).File("abcd"));
  const auto& bad = std::get<Value>(checkpoint.root.members.at(0).content);
  EXPECT_EQ(MessageOf(bad.error),
            "its rows have 48 elements, which are not whole blocks of 32 of type Q4_0");
  EXPECT_EQ(ReadString(TensorAt(checkpoint, 1).data), "abcd");
  EXPECT_THAT(checkpoint.warnings,
              ElementsAre("tensor 'bad': its rows have 48 elements, which are not whole blocks of "
                          "32 of type Q4_0: reading it will fail"));
}

TEST(Gguf, RefusesAFileWhoseOnlyTensorHasNoWholeBlocks) {
  EXPECT_EQ(Refusal(GgufWriter().Tensor("w", {}, kQ40, 0).File(std::string(18, 'x'))),
            "tensor 'w': its rows have 1 elements, which are not whole blocks of 32 of type Q4_0");
}

TEST(Gguf, ShowsAnUnknownTypeAsTheBytesUpToTheNextTensor) {
  const Checkpoint checkpoint = ReadFile(GgufWriter()
                                             .Tensor("new", {8}, 43, 0)
                                             .Tensor("w", {4}, kI8, 32)
                                             .File(std::string(32, 'n') + "abcd"));
  const Tensor& tensor = TensorAt(checkpoint, 0);
  EXPECT_THAT(tensor.shape, ElementsAre(32));
  EXPECT_EQ(tensor.foreign_dtype, "ggml type 43");
  EXPECT_EQ(ReadString(tensor.data), std::string(32, 'n'));
  EXPECT_THAT(tensor.annotations,
              ElementsAre(Pair("ggml_type", "43"), Pair("dims", "[8]"),
                          Pair("logical_shape", "[8]"), Pair("unknown_type", "true")));
}

TEST(Gguf, ShowsALastTensorOfAnUnknownTypeUpToTheEnd) {
  const Checkpoint checkpoint = ReadFile(GgufWriter().Tensor("new", {8}, 4, 0).File("0123456"));
  EXPECT_EQ(ReadString(TensorAt(checkpoint, 0).data), "0123456");
}

TEST(Gguf, RefusesAnUnknownTypeBeyondTheFile) {
  EXPECT_EQ(Refusal(GgufWriter().Tensor("new", {8}, 100, 64).File("0123456")),
            "tensor 'new': is at byte 128, but the file has 71: it is truncated");
}

// Places.

TEST(Gguf, ReadsTensorsInAnyOrderAndWithGaps) {
  std::string data(128, '-');
  data.replace(0, 4, "bbbb").replace(96, 4, "aaaa");
  const Checkpoint checkpoint =
      ReadFile(GgufWriter().Tensor("a", {4}, kI8, 96).Tensor("b", {4}, kI8, 0).File(data));
  EXPECT_EQ(ReadString(TensorAt(checkpoint, 0).data), "aaaa");
  EXPECT_EQ(ReadString(TensorAt(checkpoint, 1).data), "bbbb");
}

TEST(Gguf, CountsOffsetsFromAMultipleOfTheAlignment) {
  const Checkpoint checkpoint =
      ReadFile(OneTensor().Tensor("v", {4}, kI8, 4).Alignment(1).File("abcdefgh"));
  EXPECT_EQ(ReadString(TensorAt(checkpoint, 1).data), "efgh");
  EXPECT_EQ(AnnotationOf(checkpoint.annotations, "alignment"), "1");
}

TEST(Gguf, FindsTheAlignmentBehindOtherPairs) {
  const Checkpoint checkpoint =
      ReadFile(OneTensor().Pair("a", "x").Alignment(256).Pair("b", "y").File("abcd"));
  EXPECT_EQ(TensorAt(checkpoint, 0).file_offset, 256U);
}

TEST(Gguf, RefusesAnOffsetThatIsNotAligned) {
  EXPECT_EQ(Refusal(GgufWriter().Tensor("w", {4}, kI8, 8).File(std::string(64, 'x'))),
            "tensor 'w': is at byte 8 of the data, which is not a multiple of the alignment 32");
}

TEST(Gguf, RefusesAnOffsetThatOverflows) {
  EXPECT_EQ(Refusal(GgufWriter().Tensor("w", {4}, kI8, 0 - uint64_t{32}).File("abcd")),
            "tensor 'w': is at byte 18446744073709551584 of the data, which is beyond 2^64");
}

TEST(Gguf, RefusesTensorsThatOverlap) {
  EXPECT_EQ(Refusal(GgufWriter()
                        .Tensor("a", {33}, kI8, 0)
                        .Tensor("b", {4}, kI8, 32)
                        .File(std::string(64, 'x'))),
            "tensor 'b': begins at byte 128, but tensor 'a' ends at byte 129");
}

TEST(Gguf, TakesATensorWithoutElementsInTheMiddleOfAnother) {
  EXPECT_EQ(ReadFile(GgufWriter()
                         .Tensor("a", {64}, kI8, 0)
                         .Tensor("b", {0}, kI8, 32)
                         .File(std::string(64, 'x')))
                .root.members.size(),
            2U);
}

TEST(Gguf, ReportsMissingData) {
  EXPECT_EQ(Refusal(OneTensor().File("abc")),
            "tensor 'w': data out of range: 4 bytes at byte 64 (the file has 67): it is truncated");
  EXPECT_EQ(CodeOf(OneTensor().File("abc")), EBADMSG);
}

TEST(Gguf, ReportsMissingPaddingOfTheHeader) {
  EXPECT_EQ(Refusal(OneTensor().Header()),
            "tensor 'w': data out of range: 4 bytes at byte 64 (the file has 57): it is truncated");
}

TEST(Gguf, NeedsNoPaddingBehindTheLastTensorAndTakesWhatFollowsIt) {
  EXPECT_EQ(ReadString(TensorAt(ReadFile(OneTensor().File("abcd")), 0).data), "abcd");
  EXPECT_EQ(ReadString(TensorAt(ReadFile(OneTensor().File("abcd and more")), 0).data), "abcd");
}

// Byte order.

TEST(Gguf, ConvertsPlainElementsOfABigEndianFile) {
  const Checkpoint checkpoint =
      ReadFile(GgufWriter(3, true).Pair("a", "x").Tensor("w", {2}, kF32, 0).File("01234567"));
  const Tensor& tensor = TensorAt(checkpoint, 0);
  EXPECT_EQ(ReadString(tensor.data), "32107654");
  EXPECT_FALSE(tensor.is_in_file);
  EXPECT_EQ(MetadataOf(checkpoint), R"({"a":"x"})");
  EXPECT_EQ(AnnotationOf(checkpoint.annotations, "byte_order"), "\"big\"");
}

TEST(Gguf, LeavesBytesOfABigEndianFileAsTheyAre) {
  const Checkpoint checkpoint = ReadFile(GgufWriter(3, true).Tensor("w", {4}, kI8, 0).File("abcd"));
  EXPECT_TRUE(TensorAt(checkpoint, 0).is_in_file);
  EXPECT_EQ(ReadString(TensorAt(checkpoint, 0).data), "abcd");
}

TEST(Gguf, AnnotatesBlocksOfABigEndianFileAsStored) {
  const Checkpoint checkpoint =
      ReadFile(GgufWriter(3, true).Tensor("w", {32}, kQ40, 0).File("0123456789abcdefgh"));
  EXPECT_EQ(ReadString(TensorAt(checkpoint, 0).data), "0123456789abcdefgh");
  EXPECT_EQ(AnnotationOf(TensorAt(checkpoint, 0).annotations, "byte_order"), "\"big\"");
}

TEST(Gguf, ReadsVersion1OfBothByteOrders) {
  const Checkpoint checkpoint =
      ReadFile(GgufWriter(1, true).Tensor("w", {2, 1}, kF32, 0).File("01234567"));
  EXPECT_THAT(TensorAt(checkpoint, 0).shape, ElementsAre(1, 2));
  EXPECT_EQ(ReadString(TensorAt(checkpoint, 0).data), "32107654");
}

// Memory.

TEST(Gguf, MayNotTakeMoreMemoryThanAFileOfItsSize) {
  GgufWriter writer;
  for (int i = 0; i < 100; ++i) {
    writer.Tensor(std::to_string(i), {0}, kI8, 0).Pair(std::to_string(i), "text");
  }
  const ByteSourcePtr file = writer.Source("");
  Budget small(20'000);
  EXPECT_THROW(gguf::ReadHeader(*file, small), Error);
  Budget honest = Budget::ForFile(file->size());
  EXPECT_EQ(gguf::ReadHeader(*file, honest).entries.size(), 100U);
}

TEST(Gguf, ReadsTextsThatAreLongerThanABlock) {
  const std::string text(200'000, 'x');
  EXPECT_EQ(MetadataOf(ReadFile(GgufWriter().Pair("a", text).File(""))),
            "{\"a\":\"" + text + "\"}");
}

}  // namespace
}  // namespace ckptfs
