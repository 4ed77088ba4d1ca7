#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "parser/base/error.h"
#include "parser/base/part_name.h"
#include "parser/checkpoint.h"
#include "parser/detect.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/memory_folder.h"
#include "tests/support/reading.h"
#include "tests/support/sources.h"

namespace ckptfs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

constexpr uint32_t kI8 = 24;

std::string Name(int number, int count = 3) {
  return "m-0000" + std::to_string(number) + "-of-0000" + std::to_string(count) + ".gguf";
}

// A part with one tensor, called `tensor`, of four bytes.
std::string Part(uint16_t number, const std::string& tensor, uint16_t count = 3,
                 int32_t tensors = 3) {
  GgufWriter writer;
  if (number == 0) writer.Pair("general.name", "model");
  return writer.Split(number, count, tensors).Tensor(tensor, {4}, kI8, 0).File("abcd");
}

Files Model() {
  return {{Name(1), Part(0, "x")}, {Name(2), Part(1, "y")}, {Name(3), Part(2, "z")}};
}

Files ModelWithout(int number) {
  Files files = Model();
  files.erase(Name(number));
  return files;
}

std::vector<std::string> Keys(const Checkpoint& checkpoint) {
  std::vector<std::string> keys;
  for (const Member& member : checkpoint.root.members) keys.push_back(member.key.text);
  return keys;
}

std::string AnnotationOf(const Checkpoint& checkpoint, std::string_view name) {
  const auto found = std::ranges::find(checkpoint.annotations, name, &Annotation::first);
  return found == checkpoint.annotations.end() ? "none" : found->second;
}

const Tensor& TensorAt(const Checkpoint& checkpoint, size_t i) {
  return std::get<Tensor>(checkpoint.root.members.at(i).content);
}

// Returns the error of the file `name` among `files`.
std::string ErrorOfNamed(Files files, const std::string& name) {
  return ErrorOf(FileOf(std::move(files), name));
}

TEST(GgufSplit, ReadsAllPartsOfAFolder) {
  Files files = Model();
  files["README.md"] = "# Model";
  const Checkpoint checkpoint = Read(files);
  EXPECT_EQ(checkpoint.format, "gguf_split");
  EXPECT_THAT(Keys(checkpoint), ElementsAre("x", "y", "z"));
  EXPECT_EQ(ReadString(TensorAt(checkpoint, 2).data), "abcd");
  EXPECT_THAT(checkpoint.warnings, IsEmpty());
}

TEST(GgufSplit, ReadsAllPartsWhicheverIsNamed) {
  EXPECT_THAT(Keys(ReadCheckpoint(FileOf(Model(), Name(2)))), ElementsAre("x", "y", "z"));
}

TEST(GgufSplit, ReadsTheMetadataOfTheFirstPartAsThatOfTheModel) {
  const Checkpoint checkpoint = Read(Model());
  EXPECT_EQ(AnnotationOf(checkpoint, "metadata"),
            R"({"general.name":"model","split.no":0,"split.count":3,"split.tensors.count":3})");
  const std::string second =
      R"({"m-00002-of-00003.gguf":{"gguf_version":3,"byte_order":"little","alignment":32,)"
      R"("metadata":{"split.no":1,"split.count":3,"split.tensors.count":3},)"
      R"("metadata_types":{"split.no":"u16","split.count":"u16","split.tensors.count":"i32"}},)";
  EXPECT_THAT(AnnotationOf(checkpoint, "shards"), StartsWith(second));
}

TEST(GgufSplit, AnnotatesTheFileOfATensor) {
  const Checkpoint checkpoint = Read(Model());
  EXPECT_EQ(TensorAt(checkpoint, 1).annotations.back(),
            Annotation("file", "\"m-00002-of-00003.gguf\""));
}

TEST(GgufSplit, WarnsOfAMissingPart) {
  const Checkpoint checkpoint = Read(ModelWithout(2));
  EXPECT_THAT(checkpoint.warnings,
              ElementsAre("m-00002-of-00003.gguf: no such file: its tensors are missing (1 of "
                          "3 tensors)"));
  EXPECT_THAT(Keys(checkpoint), ElementsAre("x", "m-00002-of-00003.gguf", "z"));
  EXPECT_EQ(MessageOf(std::get<Value>(checkpoint.root.members.at(1).content).error),
            "m-00002-of-00003.gguf: no such file");
  EXPECT_EQ(AnnotationOf(checkpoint, "lost"), R"(["m-00002-of-00003.gguf"])");
  EXPECT_EQ(AnnotationOf(checkpoint, "lost_tensors"), "1");
}

TEST(GgufSplit, WarnsOfSeveralMissingParts) {
  Files files = ModelWithout(1);
  files.erase(Name(3));
  EXPECT_THAT(Read(files).warnings,
              ElementsAre("m-00001-of-00003.gguf: no such file: its tensors are missing (2 of "
                          "3 tensors in all missing files)",
                          "m-00003-of-00003.gguf: no such file: its tensors are missing"));
}

TEST(GgufSplit, SkipsOnlyTheCorruptPart) {
  Files files = Model();
  files[Name(2)].resize(100);
  const Checkpoint checkpoint = Read(files);
  EXPECT_THAT(Keys(checkpoint), ElementsAre("x", "m-00002-of-00003.gguf", "z"));
  EXPECT_THAT(checkpoint.warnings,
              ElementsAre("m-00002-of-00003.gguf: metadata 'split.tensors.count': header at byte "
                          "98: type of a value needs 4 bytes, but only 2 are left: "
                          "its tensors are missing (1 of 3 tensors)"));
}

TEST(GgufSplit, LosesAPartThatIsNoGgufFile) {
  Files files = Model();
  files[Name(3)] = "version https://git-lfs.github.com/spec/v1\n";
  EXPECT_THAT(Read(files).warnings,
              ElementsAre("m-00003-of-00003.gguf: not a GGUF file: its tensors are missing (1 of 3 "
                          "tensors)"));
}

TEST(GgufSplit, SkipsAPartWithTheNumberOfAnother) {
  Files files = Model();
  files[Name(2)] = files[Name(3)];
  EXPECT_THAT(
      Read(files).warnings,
      ElementsAre("m-00002-of-00003.gguf: has split.no 2 of 3 (expected 1 of 3 by its name): "
                  "its tensors are missing (1 of 3 tensors)"));
}

TEST(GgufSplit, LosesAPartOfAModelOfMoreParts) {
  Files files = Model();
  files[Name(2)] = Part(1, "y", 4);
  EXPECT_THAT(
      Read(files).warnings,
      ElementsAre("m-00002-of-00003.gguf: has split.no 1 of 4 (expected 1 of 3 by its name): "
                  "its tensors are missing (1 of 3 tensors)"));
}

TEST(GgufSplit, LosesAPartThatIsAModelOfItsOwn) {
  Files files = Model();
  files[Name(2)] = GgufWriter().Tensor("y", {4}, kI8, 0).File("abcd");
  EXPECT_THAT(ReadCheckpoint(FileOf(files, Name(1))).warnings,
              ElementsAre("m-00002-of-00003.gguf: not marked as a part of a model: "
                          "its tensors are missing (1 of 3 tensors)"));
}

TEST(GgufSplit, ReadsAModelThatIsOnlyCalledAPart) {
  const Files files = {{Name(2), GgufWriter().Tensor("y", {4}, kI8, 0).File("abcd")}};
  const Checkpoint checkpoint = ReadCheckpoint(FileOf(files, Name(2)));
  EXPECT_EQ(checkpoint.format, "gguf");
  EXPECT_THAT(Keys(checkpoint), ElementsAre("y"));
  EXPECT_THAT(checkpoint.warnings, IsEmpty());
}

TEST(GgufSplit, WarnsOfAPartThatIsNotCalledOne) {
  EXPECT_THAT(Read(Files{{"y.gguf", Part(1, "y")}}).warnings,
              ElementsAre("is part 2 of 3 of a model, and the others are not found by its name"));
}

TEST(GgufSplit, RefusesAModelNoneOfWhosePartsCanBeRead) {
  EXPECT_EQ(ErrorOf(Files{{Name(1, 2), "GGUF"}, {Name(2, 2), "GGUF"}}),
            "folder: m-00001-of-00002.gguf: cannot read any of the 2 files: "
            "m-00001-of-00002.gguf: header at byte 4: version needs 4 bytes, but only 0 are left");
}

TEST(GgufSplit, RefusesATensorInTwoParts) {
  Files files = Model();
  files[Name(3)] = Part(2, "x");
  EXPECT_EQ(ErrorOf(files),
            "folder: m-00001-of-00003.gguf: tensor 'x': is in m-00001-of-00003.gguf and in "
            "m-00003-of-00003.gguf");
}

TEST(GgufSplit, RefusesPartsThatDoNotHaveAllTensors) {
  Files files = Model();
  files[Name(1)] = Part(0, "x", 3, 7);
  EXPECT_EQ(ErrorOfNamed(files, Name(3)),
            "memory: its 3 parts have 3 tensors (expected 7 by split.tensors.count)");
}

TEST(GgufSplit, RejectsTwoModels) {
  Files files = Model();
  files["n-00001-of-00002.gguf"] = Part(0, "x", 2);
  files["projector.gguf"] = GgufWriter().File("");
  EXPECT_EQ(ErrorOf(files),
            "folder: directory with 3 models, 'm-00001-of-00003.gguf', "
            "'n-00001-of-00002.gguf', 'projector.gguf': name the one to mount");
}

TEST(GgufSplit, LeavesAFolderOfOneWholeModelAlone) {
  EXPECT_EQ(Read(Files{{"m.gguf", GgufWriter().File("")}}).format, "gguf");
}

TEST(GgufSplit, KnowsNoModelOfMoreThanTenThousandParts) {
  const auto most = ParsePartName("m-00001-of-10000.gguf");
  ASSERT_TRUE(most);
  EXPECT_EQ(most->count, 10'000U);
  EXPECT_FALSE(ParsePartName("m-00001-of-10001.gguf"));
}

TEST(GgufSplit, KnowsTheNamesOfParts) {
  const auto name = ParsePartName("a-b-00002-of-00011.gguf");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->prefix, "a-b");
  EXPECT_EQ(name->number, 2U);
  EXPECT_EQ(name->Of(11), "a-b-00011-of-00011.gguf");
}

TEST(GgufSplit, RejectsOtherNames) {
  EXPECT_FALSE(ParsePartName("m.gguf"));
  EXPECT_FALSE(ParsePartName("m-00001-of-00001.gguf"));
  EXPECT_FALSE(ParsePartName("m-00000-of-00002.gguf"));
  EXPECT_FALSE(ParsePartName("m-00003-of-00002.gguf"));
  EXPECT_FALSE(ParsePartName("m-1-of-2.gguf"));
  EXPECT_FALSE(ParsePartName("m-0000a-of-00002.gguf"));
  EXPECT_FALSE(ParsePartName("m-00001_of_00002.gguf"));
  EXPECT_FALSE(ParsePartName("m-00001-of-00002.safetensors"));
  EXPECT_FALSE(ParsePartName("-00001-of-00002.gguf"));
  EXPECT_FALSE(ParsePartName(".m-00001-of-00002.gguf"));
}

// Alignments.

// A part of two tensors with an alignment, which its metadata contain if `is_recorded`.
std::string Aligned(uint16_t number, uint32_t alignment, bool is_recorded) {
  GgufWriter writer;
  writer.Split(number, 2, 4);
  if (is_recorded) writer.Alignment(alignment);
  const std::string name = number == 0 ? "x" : "y";
  std::string file =
      writer.Tensor(name, {4}, kI8, 0).Tensor(name + name, {4}, kI8, alignment).Header();
  file.resize((file.size() + alignment - 1) / alignment * alignment);
  const std::string padding(alignment - 4, '\0');
  return file + "data" + padding + "more" + padding;
}

TEST(GgufSplit, TakesTheAlignmentOfTheFirstPartWhereTheFileEndsWithIt) {
  const Checkpoint checkpoint =
      Read(Files{{Name(1, 2), Aligned(0, 64, true)}, {Name(2, 2), Aligned(1, 64, false)}});
  EXPECT_EQ(ReadString(TensorAt(checkpoint, 2).data), "data");
  EXPECT_EQ(ReadString(TensorAt(checkpoint, 3).data), "more");
  EXPECT_THAT(AnnotationOf(checkpoint, "shards"), HasSubstr(R"("alignment":64,)"));
  EXPECT_THAT(AnnotationOf(checkpoint, "shards"),
              HasSubstr(R"("alignment_from":"m-00001-of-00002.gguf")"));
}

TEST(GgufSplit, TakesAnAlignmentOfTheFirstPartThatIsLessThanUsual) {
  const Checkpoint checkpoint =
      Read(Files{{Name(1, 2), Aligned(0, 8, true)}, {Name(2, 2), Aligned(1, 8, false)}});
  EXPECT_EQ(ReadString(TensorAt(checkpoint, 2).data), "data");
  EXPECT_EQ(ReadString(TensorAt(checkpoint, 3).data), "more");
}

TEST(GgufSplit, TakesTheUsualAlignmentWhereTheFileEndsWithThat) {
  const Checkpoint checkpoint =
      Read(Files{{Name(1, 2), Aligned(0, 64, true)}, {Name(2, 2), Aligned(1, 32, false)}});
  EXPECT_EQ(ReadString(TensorAt(checkpoint, 3).data), "more");
  EXPECT_THAT(AnnotationOf(checkpoint, "shards"), Not(HasSubstr("alignment_from")));
}

TEST(GgufSplit, LosesAPartOfUnknownAlignment) {
  EXPECT_EQ(ErrorOf(Files{{Name(2, 2), Aligned(1, 64, false)}}),
            "folder: m-00002-of-00002.gguf: cannot read any of the 2 files: "
            "m-00002-of-00002.gguf: its tensors end at byte 256 if they are aligned to 32 bytes, "
            "but the file has 320: the first part of the model, which cannot be read, may specify "
            "another alignment");
}

}  // namespace
}  // namespace ckptfs
