#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "parser/base/error.h"
#include "parser/detect.h"
#include "tests/support/dcp_writer.h"
#include "tests/support/memory_folder.h"
#include "tests/support/pickle_writer.h"
#include "tests/support/reading.h"
#include "tests/support/sources.h"

namespace ckptfs {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Property;
using testing::StrEq;
using testing::Throws;
using testing::ThrowsMessage;
using std::string_literals::operator""s;

// A tensor in one chunk.
DcpWriter::Tensor Whole(std::string file, const std::vector<int64_t>& shape, std::string data) {
  return {.shape = shape,
          .chunks = {{.file = std::move(file),
                      .offsets = std::vector<int64_t>(shape.size()),
                      .sizes = shape,
                      .data = std::move(data)}}};
}

// A matrix whose columns are in two files.
DcpWriter::Tensor Columns() {
  return {.shape = {2, 3},
          .chunks = {{.file = "__0_0.distcp", .offsets = {0, 0}, .sizes = {2, 2}, .data = "abde"},
                     {.file = "__1_0.distcp", .offsets = {0, 2}, .sizes = {2, 1}, .data = "cf"}}};
}

// The same, and a tensor and a value in the first file.
DcpWriter Good() {
  DcpWriter writer;
  writer.Add("columns", Columns()).Add("w", Whole("__0_0.distcp", {4}, "wxyz"));
  return writer.AddValue("step", "__0_0.distcp", PickleWriter().Int(7).Finish());
}

TEST(Dcp, ReadsATensorInOneChunk) {
  const Checkpoint checkpoint =
      Read(DcpWriter().Add("w", Whole("__0_0.distcp", {2, 2}, "abcd")).Files());
  const Tensor& tensor = TensorAt(checkpoint, "w");
  EXPECT_EQ(checkpoint.format, "dcp");
  EXPECT_EQ(tensor.dtype, Dtype::kUint8);
  EXPECT_EQ(tensor.shape, (std::vector<uint64_t>{2, 2}));
  EXPECT_EQ(ReadString(tensor.data), "abcd");
  EXPECT_EQ(tensor.member, "__0_0.distcp");
  EXPECT_TRUE(tensor.is_in_file);
  EXPECT_THAT(tensor.annotations, IsEmpty());
  EXPECT_THAT(checkpoint.warnings, IsEmpty());
}

TEST(Dcp, PutsChunksTogether) {
  const Checkpoint checkpoint = Read(DcpWriter().Add("columns", Columns()).Files());
  const Tensor& tensor = TensorAt(checkpoint, "columns");
  EXPECT_EQ(ReadString(tensor.data), "abcdef");
  EXPECT_FALSE(tensor.is_in_file);
  ASSERT_EQ(tensor.annotations.size(), 1U);
  EXPECT_EQ(tensor.annotations[0].first, "chunks");
  EXPECT_THAT(tensor.annotations[0].second,
              testing::MatchesRegex(
                  R"(\[\{"file":"__0_0.distcp","offset":0,"length":[0-9]+,"offsets":\[0,0\],)"
                  R"("sizes":\[2,2\]\},\{"file":"__1_0.distcp","offset":0,"length":[0-9]+,)"
                  R"("offsets":\[0,2\],"sizes":\[2,1\]\}\])"));
}

TEST(Dcp, PutsChunksTogetherThatAreTransposedThemselves) {
  DcpWriter::Tensor columns = Columns();
  columns.chunks[0].data = "adbe";
  columns.chunks[0].stride = {1, 2};
  EXPECT_EQ(TextOf(Read(DcpWriter().Add("columns", columns).Files()), "columns"), "abcdef");
}

TEST(Dcp, ReadsItemsThatFollowOneAnother) {
  const Checkpoint checkpoint = Read(Good().Files());
  EXPECT_EQ(TextOf(checkpoint, "columns"), "abcdef");
  EXPECT_EQ(TextOf(checkpoint, "w"), "wxyz");
  EXPECT_EQ(ValueAt(checkpoint, "step").json, "7");
}

TEST(Dcp, ReadsWhatOldVersionsWrote) {
  const Checkpoint checkpoint =
      Read(DcpWriter(DcpWriter::kOldModule).Add("columns", Columns()).Files());
  EXPECT_EQ(TextOf(checkpoint, "columns"), "abcdef");
}

TEST(Dcp, ReadsTheFolderWhoseMetadataAreNamed) {
  const Checkpoint checkpoint = ReadCheckpoint(FileOf(Good().Files(), ".metadata"));
  EXPECT_EQ(TextOf(checkpoint, "columns"), "abcdef");
}

TEST(Dcp, AnnotatesRequiresGrad) {
  DcpWriter::Tensor tensor = Whole("f", {1}, "a");
  tensor.requires_grad = true;
  const Checkpoint checkpoint = Read(DcpWriter().Add("w", tensor).Files());
  EXPECT_EQ(TensorAt(checkpoint, "w").annotations,
            (std::vector<Annotation>{{"requires_grad", "true"}}));
}

TEST(Dcp, AnnotatesVersionAndPlanner) {
  DcpWriter writer;
  writer.Add("w", Whole("f", {1}, "a"));
  Files files = writer.Files();
  files[".metadata"] = writer.Metadata(
      "X\7\0\0\0versionX\5\0\0\0001.0.0X\14\0\0\0storage_metac"
      "torch.distributed.checkpoint.metadata\nStorageMeta\n)\x81}X\7\0\0\0save_idX\2\0\0\0idsb"s);
  const Checkpoint checkpoint = Read(files);
  EXPECT_THAT(checkpoint.annotations,
              AllOf(Contains(Annotation("dcp_version", "\"1.0.0\"")),
                    Contains(Annotation("storage_meta", R"({"save_id":"id"})"))));
}

TEST(Dcp, AnnotatesTheImportsOfTheMetadata) {
  DcpWriter writer;
  writer.Add("w", Whole("f", {1}, "a"));
  Files files = writer.Files();
  files[".metadata"] = writer.Metadata("X\1\0\0\0xcos\nsystem\n"s);
  const Checkpoint checkpoint = Read(files);
  EXPECT_THAT(checkpoint.globals, testing::Contains(Global{"os.system", true}));
}

TEST(Dcp, MakesDictsAndListsOfPaths) {
  DcpWriter::Tensor first = Whole("f", {1}, "a");
  DcpWriter::Tensor second = Whole("f", {1}, "b");
  second.path = "(X\5\0\0\0modelX\1\0\0\0lK\0t"s;
  first.path = "(X\5\0\0\0modelX\1\0\0\0lK\1t"s;
  const Checkpoint checkpoint =
      Read(DcpWriter().Add("model.l.1", first).Add("model.l.0", second).Files());
  const Member& list = At(checkpoint.root, "model/l");
  const Group& group = *std::get<std::unique_ptr<Group>>(list.content);
  EXPECT_EQ(group.python_type, "list");
  ASSERT_EQ(group.members.size(), 2U);
  EXPECT_EQ(group.members[0].key.text, "0");
  EXPECT_EQ(group.members[0].key.kind, Key::Kind::kNumber);
  EXPECT_EQ(TextOf(checkpoint, "model/l/0"), "b");
  EXPECT_EQ(TextOf(checkpoint, "model/l/1"), "a");
}

TEST(Dcp, KeepsADotInAKeyOfAPath) {
  DcpWriter::Tensor tensor = Whole("f", {1}, "a");
  tensor.path = "(X\3\0\0\0a.bt"s;
  EXPECT_EQ(At(Read(DcpWriter().Add("a.b", tensor).Files()).root, "a.b").key.text, "a.b");
}

TEST(Dcp, TakesTheNameForAPathThatIsNone) {
  DcpWriter::Tensor tensor = Whole("f", {1}, "a");
  tensor.path = "(NX\1\0\0\0bt"s;
  EXPECT_EQ(TextOf(Read(DcpWriter().Add("a.b", tensor).Files()), "a.b"), "a");
}

TEST(Dcp, KeepsADictWithoutTensorsAsOneValue) {
  const std::string dict = PickleWriter().EmptyDict().Text("tensor").Int(1).SetItem().Finish();
  const Checkpoint checkpoint = Read(DcpWriter().AddValue("group", "f", dict).Files());
  EXPECT_EQ(ValueAt(checkpoint, "group").json, R"({"tensor":1})");
}

TEST(Dcp, ShowsATensorInAValue) {
  const std::string dict = PickleWriter()
                               .EmptyDict()
                               .Text("tensor")
                               .Tensor("Byte", "0", 8, {.offset = 0, .shape = {3}, .stride = {1}})
                               .SetItem()
                               .Finish();
  const Checkpoint checkpoint = Read(DcpWriter().AddValue("nested", "f", dict).Files());
  EXPECT_EQ(TextOf(checkpoint, "nested/tensor"), "sto");
  EXPECT_EQ(TensorAt(checkpoint, "nested/tensor").member, "f");
}

TEST(Dcp, SkipsChunksWithoutElements) {
  DcpWriter::Tensor tensor = Whole("f", {2}, "ab");
  tensor.chunks.push_back({.file = "missing", .offsets = {2}, .sizes = {0}, .is_stored = false});
  const Checkpoint checkpoint = Read(DcpWriter().Add("w", tensor).Files());
  EXPECT_EQ(TextOf(checkpoint, "w"), "ab");
  EXPECT_THAT(TensorAt(checkpoint, "w").annotations, IsEmpty());
}

TEST(Dcp, ReadsATensorWithoutElements) {
  const Checkpoint checkpoint = Read(DcpWriter().Add("w", Whole("f", {0, 3}, "")).Files());
  EXPECT_EQ(TensorAt(checkpoint, "w").shape, (std::vector<uint64_t>{0, 3}));
  EXPECT_EQ(TensorAt(checkpoint, "w").data.length, 0U);
  EXPECT_EQ(MessageOf(TensorAt(checkpoint, "w").error), "");
}

TEST(Dcp, ReadsAScalar) {
  EXPECT_EQ(TextOf(Read(DcpWriter().Add("w", Whole("f", {}, "a")).Files()), "w"), "a");
}

// The files of two processes that did not communicate: each wrote half of `w`, and all of `same`.
Files TwoRanks() {
  Files files = DcpWriter()
                    .Add("w", {.shape = {4}, .chunks = {{"__0_0.distcp", {0}, {2}, "ab", {}}}})
                    .Add("same", Whole("__0_0.distcp", {2}, "s0"))
                    .Files("__0.metadata");
  files.merge(DcpWriter()
                  .Add("w", {.shape = {4}, .chunks = {{"__10_0.distcp", {2}, {2}, "cd", {}}}})
                  .Add("same", Whole("__10_0.distcp", {2}, "s1"))
                  .Files("__10.metadata"));
  return files;
}

TEST(Dcp, UnitesTheMetadataOfSeveralRanks) {
  const Checkpoint checkpoint = Read(TwoRanks());
  EXPECT_EQ(TextOf(checkpoint, "w"), "abcd");
  EXPECT_EQ(TextOf(checkpoint, "same"), "s0");
  EXPECT_THAT(checkpoint.warnings, IsEmpty());
}

TEST(Dcp, UnitesTheMetadataOfSeveralRanksOfWhichOneIsNamed) {
  EXPECT_EQ(TextOf(ReadCheckpoint(FileOf(TwoRanks(), "__10.metadata")), "w"), "abcd");
}

TEST(Dcp, ReadsTheCopyOfAChunkIfTheFirstIsLost) {
  Files files = TwoRanks();
  files.erase("__0_0.distcp");
  const Checkpoint checkpoint = Read(files);
  EXPECT_EQ(TextOf(checkpoint, "same"), "s1");
  EXPECT_THAT(checkpoint.warnings, ElementsAre("'__0_0.distcp': missing 'w': no such file"));
}

TEST(Dcp, RefusesRanksThatContradictEachOther) {
  Files files = TwoRanks();
  files.merge(DcpWriter().Add("w", Whole("f", {5}, "abcde")).Files("__11.metadata"));
  EXPECT_EQ(
      ErrorOf(files),
      "folder: __0.metadata: __11.metadata: 'w': is uint8 of [5] here, but uint8 of [4] elsewhere");
}

TEST(Dcp, ReadsTheTensorsOfOtherFilesIfOneIsMissing) {
  Files files = Good().Files();
  files.erase("__1_0.distcp");
  const Checkpoint checkpoint = Read(files);
  EXPECT_EQ(TextOf(checkpoint, "w"), "wxyz");
  const Tensor& tensor = TensorAt(checkpoint, "columns");
  EXPECT_EQ(MessageOf(tensor.error), "");
  EXPECT_EQ(ReadString(*tensor.data.source, 3, 2), "de");
  EXPECT_THAT([&] { ReadString(*tensor.data.source, 2, 1); },
              Throws<Error>(Property(&Error::code, EIO)));
  EXPECT_THAT(checkpoint.warnings, ElementsAre("'__1_0.distcp': missing 'columns': no such file"));
  EXPECT_THAT(checkpoint.annotations, Contains(Annotation("lost", R"(["columns"])")));
  EXPECT_FALSE(tensor.is_complete);
  EXPECT_THAT(tensor.annotations,
              Contains(Annotation("lost_chunks", R"([{"offsets":[0,2],"sizes":[2,1],)"
                                                 R"("error":"no such file"}])")));
}

TEST(Dcp, WarnsOfAMissingFileOnce) {
  Files files = Good().Files();
  files.erase("__0_0.distcp");
  const Checkpoint checkpoint = Read(files);
  EXPECT_THAT(checkpoint.warnings, ElementsAre("'__0_0.distcp': 3 missing parts, first 'columns': "
                                               "no such file"));
  EXPECT_EQ(MessageOf(TensorAt(checkpoint, "w").error), "no such file");
  EXPECT_EQ(ValueAt(checkpoint, "step").json, "null");
  EXPECT_EQ(MessageOf(ValueAt(checkpoint, "step").error), "no such file");
  EXPECT_THAT(checkpoint.annotations, Contains(Annotation("lost", R"(["columns","w","step"])")));
}

TEST(Dcp, RefusesACheckpointOfWhichNothingIsLeft) {
  Files files = Good().Files();
  files.erase("__0_0.distcp");
  files.erase("__1_0.distcp");
  EXPECT_EQ(ErrorOf(files),
            "folder: .metadata: '__0_0.distcp': 3 missing parts, first 'columns': no such file");
}

TEST(Dcp, LosesWhatATruncatedFileNoLongerHas) {
  Files files = Good().Files();
  files["__0_0.distcp"].resize(files["__0_0.distcp"].size() - 1);
  const Checkpoint checkpoint = Read(files);
  EXPECT_EQ(TextOf(checkpoint, "columns"), "abcdef");
  EXPECT_TRUE(ValueAt(checkpoint, "step").error);
}

TEST(Dcp, LosesAnItemOfAnotherShape) {
  DcpWriter::Tensor tensor = Whole("f", {3}, "abc");
  tensor.shape = {4};
  DcpWriter writer = Good();
  writer.Add("x", {.shape = {4}, .chunks = {{"f", {0}, {4}, "", {}, false}}});
  const std::vector<int64_t> offset = {0};
  Files files = DcpWriter().Add("y", Whole("f", {3}, "abc")).Files();
  writer.AddPlace("x", &offset, "f", 0, static_cast<int64_t>(files["f"].size()));
  files.erase(".metadata");
  files.merge(writer.Files());
  EXPECT_EQ(MessageOf(TensorAt(Read(files), "x").error), "has the shape [3], but should have [4]");
}

TEST(Dcp, LosesAnItemOfAnotherType) {
  DcpWriter::Tensor tensor = Whole("f", {4}, "abcd");
  tensor.dtype = "int8";
  EXPECT_EQ(MessageOf(TensorAt(Read(Good().Add("x", tensor).Files()), "x").error),
            "is of uint8, but should be of int8");
}

TEST(Dcp, ReportsAChunkWithoutALocation) {
  DcpWriter::Tensor columns = Columns();
  columns.chunks[1].is_stored = false;
  const Checkpoint checkpoint = Read(DcpWriter().Add("columns", columns).Files());
  EXPECT_EQ(ReadString(*TensorAt(checkpoint, "columns").data.source, 0, 2), "ab");
  EXPECT_THAT(checkpoint.warnings,
              ElementsAre("'.metadata': missing 'columns': the location of its chunk at"
                          " [0,2] is missing"));
}

TEST(Dcp, ReportsMissingChunks) {
  DcpWriter::Tensor columns = Columns();
  columns.chunks.pop_back();
  const Checkpoint checkpoint = Read(DcpWriter().Add("columns", columns).Files());
  EXPECT_EQ(ReadString(*TensorAt(checkpoint, "columns").data.source, 3, 2), "de");
  EXPECT_FALSE(TensorAt(checkpoint, "columns").is_complete);
  EXPECT_THAT(checkpoint.warnings, ElementsAre("'.metadata': missing 'columns': missing chunks"));
}

TEST(Dcp, LosesATensorWhoseChunksOverlap) {
  DcpWriter::Tensor columns = Columns();
  columns.chunks[1].offsets = {0, 1};
  EXPECT_EQ(MessageOf(TensorAt(Read(Good().Add("x", columns).Files()), "x").error),
            "its chunks of [2,2] at [0,0] and of [2,1] at [0,1] overlap");
}

TEST(Dcp, LosesATensorWithAChunkOutsideOfIt) {
  DcpWriter::Tensor columns = Columns();
  columns.chunks[1].offsets = {1, 2};
  EXPECT_EQ(MessageOf(TensorAt(Read(Good().Add("x", columns).Files()), "x").error),
            "its chunk of [2,1] at [1,2] reaches beyond its shape, [2,3]");
}

TEST(Dcp, LosesATensorThatIsTooLargeToBeTrue) {
  const DcpWriter::Tensor huge = {.shape = {int64_t{1} << 40, int64_t{1} << 40}, .chunks = {}};
  const Checkpoint checkpoint = Read(Good().Add("x", huge).Files());
  EXPECT_EQ(ValueAt(checkpoint, "x").python_type, "tensor");
  EXPECT_THAT(ValueAt(checkpoint, "x").json, testing::HasSubstr("\"error\":"));
}

TEST(Dcp, LosesALargeTensorOfWhichHardlyAnythingIsThere) {
  DcpWriter::Tensor huge = Whole("f", {1}, "a");
  huge.shape = {int64_t{1} << 41};
  const Checkpoint checkpoint = Read(Good().Add("x", huge).Files());
  EXPECT_THAT(ValueAt(checkpoint, "x").json,
              testing::HasSubstr("incomplete, and too large to show (2199023255552 bytes)"));
}

TEST(Dcp, LosesAnItemThatWentThroughATransform) {
  DcpWriter::Tensor tensor = Whole("f", {1}, "a");
  tensor.chunks[0].transform = "stream.zstd/1";
  EXPECT_EQ(MessageOf(TensorAt(Read(Good().Add("x", tensor).Files()), "x").error),
            "has the unsupported transform 'stream.zstd/1'");
}

TEST(Dcp, LosesAnItemThatIsNoFileOfTorch) {
  Files files = Good().Files();
  files["__1_0.distcp"].assign(files["__1_0.distcp"].size(), 'x');
  EXPECT_THAT(Read(files).warnings,
              ElementsAre(testing::StartsWith("'__1_0.distcp': missing 'columns': ")));
}

TEST(Dcp, LosesAnItemWhosePlaceOverflows) {
  DcpWriter writer = Good();
  writer.Add("x", {.shape = {4}, .chunks = {{"f", {0}, {4}, "", {}, false}}});
  const std::vector<int64_t> offset = {0};
  writer.AddPlace("x", &offset, "__0_0.distcp", INT64_MAX, INT64_MAX);
  EXPECT_THAT(MessageOf(TensorAt(Read(writer.Files()), "x").error),
              testing::StartsWith("should have 9223372036854775807 bytes at byte "
                                  "9223372036854775807, but the file ends at byte "));
}

TEST(Dcp, NeverLeavesTheFolder) {
  DcpWriter writer = Good();
  writer.Add("x", {.shape = {4}, .chunks = {{"f", {0}, {4}, "", {}, false}}});
  const std::vector<int64_t> offset = {0};
  writer.AddPlace("x", &offset, "../secret", 0, 4);
  Files files = writer.Files();
  files["../secret"] = "abcd";
  EXPECT_EQ(MessageOf(TensorAt(Read(files), "x").error), "invalid file name");
}

TEST(Dcp, ReadsNoItemAgainAndAgain) {
  DcpWriter writer = Good();
  const auto size = static_cast<int64_t>(writer.Files().at("__0_0.distcp").size());
  const std::vector<int64_t> offset = {0};
  for (int i = 0; i < 30; ++i) {
    const std::string name = "x" + std::to_string(i);
    writer.Add(name, {.shape = {4}, .chunks = {{"f", {0}, {4}, "", {}, false}}});
    writer.AddPlace(name, &offset, "__0_0.distcp", 0, size);
  }
  EXPECT_EQ(MessageOf(TensorAt(Read(writer.Files()), "x29").error),
            "too many items overlap with others in their files");
}

TEST(Dcp, RefusesMetadataOfAnotherClass) {
  Files files = Good().Files();
  files[".metadata"] = PickleWriter().Global("os", "system").Finish();
  EXPECT_EQ(ErrorOf(files),
            "folder: .metadata: is os.system, but the metadata of a distributed checkpoint is "
            "an object of PyTorch's");
}

TEST(Dcp, RefusesMetadataThatAreNoPickle) {
  Files files = Good().Files();
  files[".metadata"] = "";
  EXPECT_THAT(ErrorOf(files), testing::StartsWith("folder: .metadata: "));
}

TEST(Dcp, RefusesAnItemThatIsNeitherTensorNorBytes) {
  EXPECT_EQ(ErrorOf(Good().AddOther("x", "K\1").Files()),
            "folder: .metadata: 'x': is 1, but must be metadata of a tensor or of bytes");
}

TEST(Dcp, RefusesATypeThatIsNone) {
  DcpWriter::Tensor tensor = Whole("f", {1}, "a");
  tensor.dtype = "nn";
  EXPECT_EQ(ErrorOf(DcpWriter().Add("w", tensor).Files()),
            "folder: .metadata: 'w': unknown dtype torch.nn");
}

TEST(Dcp, RefusesANegativeSize) {
  DcpWriter::Tensor tensor = Whole("f", {1}, "a");
  tensor.shape = {-1};
  EXPECT_EQ(
      ErrorOf(DcpWriter().Add("w", tensor).Files()),
      "folder: .metadata: 'w': its size has an invalid number (found -1, expected 0 to 2^63)");
}

TEST(Dcp, IsNotTakenForAFolderWithSomeOtherMetadata) {
  EXPECT_EQ(ErrorOf({{".metadata", "name: something"}, {"README", "read me"}}),
            "folder: directory without a checkpoint in a supported format, but with "
            "'.metadata', 'README'");
}

}  // namespace
}  // namespace ckptfs
