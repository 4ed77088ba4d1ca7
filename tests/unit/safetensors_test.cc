#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "parser/base/error.h"
#include "parser/detect.h"
#include "parser/format/safetensors/header.h"
#include "tests/support/pickle_writer.h"
#include "tests/support/reading.h"
#include "tests/support/safetensors.h"
#include "tests/support/sources.h"
#include "tests/support/zip_writer.h"

namespace ckptfs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

Checkpoint Read(const std::string& header, const std::string& data = "01234567") {
  return ReadCheckpoint(Safetensors(header, data));
}

// Returns the error of a file with 8 bytes of data.
std::string ErrorOf(const std::string& header, const std::string& data = "01234567") {
  return ErrorOf(Source{.file = Safetensors(header, data), .folder = nullptr, .file_name = ""});
}

// An entry of all of the data.
std::string Entry(const std::string& dtype, const std::string& shape, size_t size = 8) {
  return "{" + SafetensorsEntry("w", dtype, shape, size) + "}";
}

TEST(Safetensors, FindsTheBytesOfATensor) {
  const std::string header = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                             R"("b":{"dtype":"F16","shape":[1,3],"data_offsets":[2,8]}})";
  const Checkpoint checkpoint = Read(header);
  EXPECT_EQ(checkpoint.format, "safetensors");
  EXPECT_EQ(checkpoint.root.members.size(), 2U);
  const Tensor& b = TensorAt(checkpoint, "b");
  EXPECT_EQ(b.dtype, Dtype::kFloat16);
  EXPECT_EQ(b.shape, (std::vector<uint64_t>{1, 3}));
  EXPECT_EQ(ReadString(b.data), "234567");
  EXPECT_TRUE(b.is_in_file);
  EXPECT_EQ(b.file_offset, 8 + header.size() + 2);
  EXPECT_TRUE(b.annotations.empty());
}

TEST(Safetensors, KeepsTheOrderOfTheHeader) {
  const Checkpoint checkpoint = Read(R"({"z":{"dtype":"U8","shape":[2],"data_offsets":[6,8]},)"
                                     R"("a":{"dtype":"U8","shape":[6],"data_offsets":[0,6]}})");
  EXPECT_EQ(checkpoint.root.members.front().key.text, "z");
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "z").data), "67");
}

TEST(Safetensors, ReadsAFileWithoutTensors) { EXPECT_TRUE(Read("{}", "").root.members.empty()); }

TEST(Safetensors, ReadsBlanksAroundTheHeader) {
  EXPECT_EQ(Read(" \t\r\n" + Entry("U8", "[8]") + "  \n ").root.members.size(), 1U);
}

TEST(Safetensors, ReadsAHeaderThatBeginsBehindAPageOfBlanks) {
  EXPECT_EQ(Read(std::string(10'000, ' ') + Entry("U8", "[8]")).root.members.size(), 1U);
}

TEST(Safetensors, ReadsAScalar) {
  EXPECT_TRUE(TensorAt(Read(Entry("I64", "[]")), "w").shape.empty());
}

TEST(Safetensors, ReadsTensorsWithoutElementsWhereverOthersMeet) {
  const Checkpoint checkpoint = Read(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)"
                                     R"("b":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                                     R"("c":{"dtype":"U8","shape":[3,0],"data_offsets":[8,8]}})");
  EXPECT_EQ(TensorAt(checkpoint, "c").data.length, 0U);
}

TEST(Safetensors, ReadsNamesAsTheyAre) {
  const Checkpoint checkpoint =
      Read(R"({"../\u0000\"":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})");
  EXPECT_EQ(checkpoint.root.members.front().key.text, std::string("../\0\"", 5));
}

TEST(Safetensors, IgnoresMembersOfAnEntryThatItDoesNotKnow) {
  const Checkpoint checkpoint =
      Read(R"({"w":{"x":[1,{"dtype":3,"y":[[]]}],"dtype":"U8","shape":[8],"s":-1.5,)"
           R"("data_offsets":[0,8],"n":null}})");
  EXPECT_EQ(TensorAt(checkpoint, "w").dtype, Dtype::kUint8);
}

TEST(Safetensors, IsNoZipEvenIfItsDataEndsAsOne) {
  const std::string zip = "PK\5\6" + std::string(18, '\0');
  EXPECT_EQ(Read(Entry("U8", "[22]", 22), zip).format, "safetensors");
}

TEST(Safetensors, ShowsATypeThatItDoesNotKnowAsBytes) {
  const Checkpoint checkpoint = Read(Entry("F1_NEW", "[64]"));
  const Tensor& tensor = TensorAt(checkpoint, "w");
  EXPECT_EQ(tensor.dtype, Dtype::kOpaque);
  EXPECT_EQ(tensor.foreign_dtype, "F1_NEW");
  EXPECT_EQ(tensor.shape, (std::vector<uint64_t>{8}));
  EXPECT_THAT(tensor.annotations,
              ElementsAre(Pair("stored_dtype", "\"F1_NEW\""), Pair("stored_shape", "[64]")));
}

TEST(Safetensors, ShowsSixBitsAsBytes) {
  const Checkpoint checkpoint = Read(Entry("F6_E2M3", "[4]", 3), "012");
  const Tensor& tensor = TensorAt(checkpoint, "w");
  EXPECT_EQ(tensor.foreign_dtype, "F6_E2M3");
  EXPECT_EQ(tensor.shape, (std::vector<uint64_t>{3}));
}

TEST(Safetensors, CountsFourBitsInPairsAsTorchDoes) {
  const Checkpoint checkpoint = Read(Entry("F4", "[2,8]"));
  const Tensor& tensor = TensorAt(checkpoint, "w");
  EXPECT_EQ(tensor.dtype, Dtype::kFloat4E2m1fnX2);
  EXPECT_EQ(tensor.shape, (std::vector<uint64_t>{2, 4}));
  EXPECT_THAT(tensor.annotations,
              ElementsAre(Pair("stored_dtype", "\"F4\""), Pair("stored_shape", "[2,8]")));
}

TEST(Safetensors, ShowsRowsOfHalfBytesAsBytes) {
  EXPECT_EQ(TensorAt(Read(Entry("F4", "[2,3]", 3), "012"), "w").shape, (std::vector<uint64_t>{3}));
}

TEST(Safetensors, AnnotatesTheMetadata) {
  const Checkpoint checkpoint = Read(R"({"__metadata__":{"format":"pt","é":"\""}})", "");
  EXPECT_THAT(checkpoint.annotations,
              ElementsAre(Pair("metadata", R"({"format":"pt","\u00e9":"\""})")));
}

TEST(Safetensors, TakesNullForNoMetadata) {
  EXPECT_TRUE(Read(R"({"__metadata__":null})", "").annotations.empty());
}

TEST(Safetensors, BringsBackTiedTensorsThatSaveModelDropped) {
  const Checkpoint checkpoint = Read(R"({"__metadata__":{"head":"embed","format":"pt"},)"
                                     R"("embed":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})");
  ASSERT_EQ(checkpoint.root.members.size(), 2U);
  const Tensor& head = TensorAt(checkpoint, "head");
  EXPECT_EQ(head.data.offset, TensorAt(checkpoint, "embed").data.offset);
  EXPECT_EQ(head.data.source, TensorAt(checkpoint, "embed").data.source);
  EXPECT_THAT(head.annotations, ElementsAre(Pair("tied_to", "\"embed\"")));
}

TEST(Safetensors, DoesNotTieANameThatHasATensor) {
  const Checkpoint checkpoint = Read(R"({"__metadata__":{"a":"b"},)"
                                     R"("a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                                     R"("b":{"dtype":"U8","shape":[6],"data_offsets":[2,8]}})");
  EXPECT_EQ(checkpoint.root.members.size(), 2U);
}

TEST(Safetensors, RefusesASizeThatDisagreesWithTheShape) {
  EXPECT_EQ(ErrorOf(Entry("F32", "[3]")),
            "memory: tensor 'w': size mismatch (found 8 bytes, dtype and shape need 12)");
}

TEST(Safetensors, RefusesAShapeThatOverflows) {
  EXPECT_EQ(ErrorOf(Entry("F32", "[4294967296,4294967296]")),
            "memory: tensor 'w': its shape has more than 2^64 elements");
}

TEST(Safetensors, RefusesAShapeWhoseBitsOverflow) {
  EXPECT_EQ(ErrorOf(Entry("F64", "[1152921504606846977]")),
            "memory: tensor 'w': its shape needs more than 2^64 bits");
}

TEST(Safetensors, RefusesBitsThatAreNoWholeBytes) {
  EXPECT_EQ(ErrorOf(Entry("F4", "[3]", 1), "0"),
            "memory: tensor 'w': its shape needs 12 bits, which are not whole bytes");
}

TEST(Safetensors, RefusesFourBitsOfAnotherSize) {
  EXPECT_EQ(ErrorOf(Entry("F4", "[4]")),
            "memory: tensor 'w': size mismatch (found 8 bytes, dtype and shape need 2)");
}

TEST(Safetensors, RefusesTenTensorsOnOneRange) {
  std::string header = "{";
  for (int i = 0; i < 10; ++i) {
    header += SafetensorsEntry(std::to_string(i), "F32", "[2]", 8) + ",";
  }
  header.back() = '}';
  EXPECT_THAT(ErrorOf(header), HasSubstr(": begins at byte 0 of the data, but what is before it "
                                         "ends at byte 8"));
}

TEST(Safetensors, RefusesAHeaderThatIsNoUtf8) {
  EXPECT_THAT(ErrorOf("{\"\xff\":0}"), HasSubstr("memory: header: invalid JSON at byte 2"));
}

TEST(Safetensors, RefusesHolesBetweenTensors) {
  EXPECT_EQ(
      ErrorOf(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
              R"("b":{"dtype":"U8","shape":[6],"data_offsets":[2,8]}})"),
      "memory: tensor 'b': begins at byte 2 of the data, but what is before it ends at byte 1");
}

TEST(Safetensors, RefusesTensorsThatOverlap) {
  EXPECT_EQ(
      ErrorOf(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
              R"("b":{"dtype":"U8","shape":[5],"data_offsets":[3,8]}})"),
      "memory: tensor 'b': begins at byte 3 of the data, but what is before it ends at byte 4");
}

TEST(Safetensors, RefusesATensorWithoutElementsInTheMiddleOfAnother) {
  EXPECT_EQ(
      ErrorOf(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)"
              R"("b":{"dtype":"U8","shape":[0],"data_offsets":[4,4]}})"),
      "memory: tensor 'b': begins at byte 4 of the data, but what is before it ends at byte 8");
}

TEST(Safetensors, RefusesATensorThatEndsBeforeItBegins) {
  EXPECT_EQ(ErrorOf(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)"
                    R"("b":{"dtype":"X","shape":[],"data_offsets":[8,4]}})"),
            "memory: tensor 'b': ends at byte 4 of the data, but begins at byte 8");
}

TEST(Safetensors, RefusesBytesBehindTheLastTensor) {
  EXPECT_EQ(ErrorOf("{}"), "memory: the tensors need 0 bytes of data, but the file has 8");
}

TEST(Safetensors, ReportsMissingData) {
  EXPECT_EQ(ErrorOf(Entry("U8", "[8]"), "0123"),
            "memory: the tensors need 8 bytes of data, but the file has 4: it is truncated");
}

TEST(Safetensors, ReportsATruncatedHeader) {
  const auto cut =
      std::make_shared<MemorySource>(SafetensorsFile(Entry("U8", "[8]"), "").substr(0, 20));
  EXPECT_THAT([&] { ReadCheckpoint(cut); },
              testing::ThrowsMessage<Error>(
                  "memory: header: needs 53 bytes, but only 12 are left: the file is truncated"));
}

TEST(Safetensors, RefusesAHeaderBeyondTheLimit) {
  std::string file = SafetensorsFile("{}", "");
  file.replace(0, 8, std::string("\x01\xe1\xf5\x05\0\0\0\0", 8));
  EXPECT_THAT(
      [&] { ReadCheckpoint(std::make_shared<MemorySource>(file)); },
      testing::ThrowsMessage<Error>("memory: header: has 100000001 bytes (maximum 100000000)"));
}

TEST(Safetensors, RefusesNumbersThatAreNotWhole) {
  EXPECT_EQ(ErrorOf(Entry("U8", "[-8]")),
            "memory: header: tensor 'w': its shape contains -8, but must contain whole numbers");
  EXPECT_EQ(ErrorOf(Entry("U8", "[8.0]")),
            "memory: header: tensor 'w': its shape contains 8.0, but must contain whole numbers");
}

TEST(Safetensors, RefusesAListInAShape) {
  EXPECT_EQ(
      ErrorOf(Entry("U8", "[[8]]")),
      "memory: header: tensor 'w': its shape contains a list, but must contain whole numbers");
}

TEST(Safetensors, RefusesAShapeThatIsNoList) {
  EXPECT_EQ(ErrorOf(Entry("U8", "8")),
            "memory: header: tensor 'w': its shape is a number, but must be a list");
}

TEST(Safetensors, RefusesSixtyFiveDimensions) {
  std::string shape = "[8";
  for (int i = 0; i < 64; ++i) shape += ",1";
  EXPECT_EQ(ErrorOf(Entry("U8", shape + "]")),
            "memory: header: tensor 'w': has more than 64 dimensions");
}

TEST(Safetensors, RefusesAnEntryWithoutADtype) {
  EXPECT_EQ(ErrorOf(R"({"w":{"shape":[8],"data_offsets":[0,8]}})"),
            "memory: header: tensor 'w': has no dtype");
}

TEST(Safetensors, RefusesAnEntryWithoutAShape) {
  EXPECT_EQ(ErrorOf(R"({"w":{"dtype":"U8","data_offsets":[0,8]}})"),
            "memory: header: tensor 'w': has no shape");
}

TEST(Safetensors, DoesNotTakeTheMembersOfOneEntryForThoseOfAnother) {
  EXPECT_EQ(ErrorOf(R"({"v":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"w":{}})"),
            "memory: header: tensor 'w': has no dtype");
}

TEST(Safetensors, RefusesThreeOffsets) {
  EXPECT_EQ(ErrorOf(R"({"w":{"dtype":"U8","shape":[8],"data_offsets":[0,8,8]}})"),
            "memory: header: tensor 'w': has more than 2 data_offsets");
}

TEST(Safetensors, RefusesANameThatOccursTwiceEvenIfEscaped) {
  EXPECT_EQ(ErrorOf(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)"
                    R"("\u0061":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})"),
            "memory: header: 'a' occurs twice");
}

// As safetensors 0.8 does, by experiment.
TEST(Safetensors, TakesTheLastOfTwoMetadataOfOneKey) {
  const Checkpoint checkpoint =
      Read(R"({"__metadata__":{"a":"1","b":"x","\u0061":"2","a":"3"}})", "");
  EXPECT_THAT(checkpoint.annotations,
              testing::ElementsAre(testing::Pair("metadata", R"({"b":"x","a":"3"})")));
}

TEST(Safetensors, IgnoresAMemberThatOccursTwiceWithoutAMeaning) {
  const Checkpoint checkpoint =
      Read(R"({"a":{"dtype":"U8","x":1,"x":{"y":1,"y":2},"shape":[8],"data_offsets":[0,8]}})",
           "abcdefgh");
  EXPECT_EQ(checkpoint.root.members.size(), 1U);
}

TEST(Safetensors, RefusesAMemberOfAnEntryThatOccursTwice) {
  EXPECT_EQ(ErrorOf(R"({"a":{"dtype":"U8","dtype":"U8","shape":[8],"data_offsets":[0,8]}})"),
            "memory: header: tensor 'a': 'dtype' occurs twice");
  EXPECT_EQ(ErrorOf(R"({"a":{"dtype":"U8","shape":[8],"shape":[8],"data_offsets":[0,8]}})"),
            "memory: header: tensor 'a': 'shape' occurs twice");
}

TEST(Safetensors, RefusesMetadataTwiceEvenIfBothAreNull) {
  EXPECT_EQ(ErrorOf(R"({"__metadata__":null,"\u005f_metadata__":null})", ""),
            "memory: header: '__metadata__' occurs twice");
}

TEST(Safetensors, RefusesMetadataThatIsNoText) {
  EXPECT_EQ(ErrorOf(R"({"__metadata__":{"a":{"b":"c"}}})", ""),
            "memory: header: 'a' in __metadata__ is an object, but must be a text");
}

TEST(Safetensors, RefusesAMemberThatIsNoEntry) {
  EXPECT_EQ(ErrorOf(R"({"__METADATA__":"pt"})", ""),
            "memory: header: tensor '__METADATA__': is a text, but must be an object");
}

TEST(Safetensors, ReportsTheByteOfInvalidJson) {
  EXPECT_EQ(ErrorOf(R"({"w":)"), "memory: header: invalid JSON at byte 5: unexpected end of text");
}

TEST(Safetensors, PrintsNoControlCharactersOfNames) {
  EXPECT_THAT(ErrorOf("{\"\\u001b[2J\":0}"), HasSubstr("tensor '?[2J': "));
}

TEST(Safetensors, MayNotTakeMoreMemoryThanAFileOfItsSize) {
  std::string header = R"({"w":{"dtype":"U8","shape":[8],"data_offsets":[0,8]})";
  for (int i = 0; i < 100; ++i) {
    header += ",\"" + std::to_string(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[8,8]})";
  }
  const ByteSourcePtr file = Safetensors(header + "}", "01234567");
  Budget small(20'000);
  EXPECT_THROW(safetensors::ReadHeader(*file, small), Error);
  Budget honest = Budget::ForFile(file->size());
  EXPECT_EQ(safetensors::ReadHeader(*file, honest).entries.size(), 101U);
}

}  // namespace
}  // namespace ckptfs
