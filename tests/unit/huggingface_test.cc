#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/error.h"
#include "parser/detect.h"
#include "tests/support/memory_folder.h"
#include "tests/support/pickle_writer.h"
#include "tests/support/reading.h"
#include "tests/support/safetensors.h"
#include "tests/support/sources.h"

namespace ckptfs {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::Property;
using testing::StrEq;
using testing::Throws;
using testing::ThrowsMessage;

constexpr std::string_view kIndex = "model.safetensors.index.json";

// A file with one tensor of bytes.
std::string Shard(const std::string& name, const std::string& data) {
  const std::string shape = "[" + std::to_string(data.size()) + "]";
  return SafetensorsFile("{" + SafetensorsEntry(name, "U8", shape, data.size()) + "}", data);
}

// A file with one tensor of bytes, as torch.save writes it.
std::string TorchShard(const std::string& name, const std::string& data) {
  const auto size = static_cast<int64_t>(data.size());
  const std::string pickle =
      PickleWriter()
          .EmptyDict()
          .Text(name)
          .Tensor("Byte", "0", size, {.offset = 0, .shape = {size}, .stride = {1}})
          .SetItem()
          .Finish();
  const std::vector<std::string> storages = {data};
  const ByteSourcePtr file = TorchArchive(pickle, storages);
  return ReadString(*file, 0, file->size());
}

std::string IndexOf(const std::string& map) { return R"({"weight_map":{)" + map + "}}"; }

// Two shards and their index.
Files TwoShards() {
  return {{std::string(kIndex), IndexOf(R"("a":"1","b":"2")")},
          {"1", Shard("a", "aaaa")},
          {"2", Shard("b", "bb")}};
}

std::string ErrorOfIndex(const std::string& index) {
  Files files = TwoShards();
  files[std::string(kIndex)] = index;
  return ErrorOf(files);
}

TEST(HuggingFace, ReadsAllShardsAsOneCheckpoint) {
  const Checkpoint checkpoint = ReadCheckpoint(FolderOf(TwoShards()));
  EXPECT_EQ(checkpoint.format, "huggingface");
  EXPECT_THAT(checkpoint.warnings, IsEmpty());
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "a").data), "aaaa");
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "b").data), "bb");
  EXPECT_THAT(TensorAt(checkpoint, "b").annotations, ElementsAre(Pair("file", "\"2\"")));
}

TEST(HuggingFace, ReadsTheIndexThatIsNamedItself) {
  const Checkpoint checkpoint = ReadCheckpoint(FileOf(TwoShards(), std::string(kIndex)));
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "b").data), "bb");
}

TEST(HuggingFace, ReadsTheIndexOfAVariant) {
  Files files = TwoShards();
  files["model.safetensors.index.fp16.json"] = files[std::string(kIndex)];
  files.erase(std::string(kIndex));
  EXPECT_EQ(ReadCheckpoint(FolderOf(files)).root.members.size(), 2U);
}

TEST(HuggingFace, ReadsShardsOfTorchWithTheirImports) {
  const Checkpoint checkpoint = ReadCheckpoint(
      FolderOf({{"pytorch_model.bin.index.json", IndexOf(R"("a":"1.bin","b":"2.bin")")},
                {"1.bin", TorchShard("a", "aaaa")},
                {"2.bin", TorchShard("b", "bb")}}));
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "b").data), "bb");
  EXPECT_THAT(checkpoint.globals, ElementsAre(Global{"collections.OrderedDict", false},
                                              Global{"torch.ByteStorage", false},
                                              Global{"torch._utils._rebuild_tensor_v2", false}));
  EXPECT_THAT(checkpoint.annotations,
              ElementsAre(Pair("shards", R"({"1.bin":{"format":"torch","byteorder":"little",)"
                                         R"("folder":"archive"},"2.bin":{"format":"torch",)"
                                         R"("byteorder":"little","folder":"archive"}})")));
}

TEST(HuggingFace, ReadsShardsOfDifferentFormats) {
  Files files = TwoShards();
  files["2"] = TorchShard("b", "bb");
  const Checkpoint checkpoint = ReadCheckpoint(FolderOf(files));
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "a").data), "aaaa");
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "b").data), "bb");
}

TEST(HuggingFace, ReadsTheMetadataOfTheIndexAndOfEachShard) {
  Files files = TwoShards();
  files[std::string(kIndex)] =
      R"({"metadata": {"total_size": 1.5e3, "note": ["é"]}, "weight_map": {"a": "1", "b": "2"}})";
  files["2"] = SafetensorsFile(R"({"__metadata__":{"format":"pt"},)"
                               R"("b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
                               "bb");
  EXPECT_THAT(
      ReadCheckpoint(FolderOf(files)).annotations,
      ElementsAre(Pair("index_metadata", R"({"total_size":1.5e3,"note":["\u00e9"]})"),
                  Pair("shards", R"({"1":{"format":"safetensors"},"2":{"format":"safetensors",)"
                                 R"("metadata":{"format":"pt"}}})")));
}

TEST(HuggingFace, ReadsAnIndexThatIsTheMapItself) {
  EXPECT_EQ(ErrorOfIndex(R"({"a":"1","b":"2"})"), "no error");
}

TEST(HuggingFace, PrefersTheIndexOfSafetensors) {
  Files files = TwoShards();
  files["pytorch_model.bin.index.json"] = IndexOf(R"("x":"missing")");
  EXPECT_THAT(ReadCheckpoint(FolderOf(files)).warnings, IsEmpty());
}

TEST(HuggingFace, LeavesOutTheIndexesOfOtherFrameworks) {
  Files files = TwoShards();
  files["pytorch_model.bin.index.json"] = files[std::string(kIndex)];
  files.erase(std::string(kIndex));
  files["tf_model.h5.index.json"] = IndexOf(R"("x":"missing")");
  files["flax_model.msgpack.index.json"] = IndexOf(R"("x":"missing")");
  EXPECT_EQ(ErrorOf(files), "no error");
}

TEST(HuggingFace, RejectsSeveralIndexes) {
  Files files = TwoShards();
  files["lora.safetensors.index.json"] = IndexOf(R"("a":"1")");
  EXPECT_EQ(ErrorOf(files),
            "folder: directory with 2 indexes of checkpoints, 'lora.safetensors.index.json', "
            "'model.safetensors.index.json': name the one to mount");
}

TEST(HuggingFace, PrefersTheIndexOfTheFullPrecision) {
  Files files = TwoShards();
  files["model.safetensors.index.fp16.json"] = "not read";
  EXPECT_EQ(ErrorOf(files), "no error");
}

TEST(HuggingFace, ReadsShardsWithoutAnIndex) {
  const Checkpoint checkpoint =
      ReadCheckpoint(FolderOf({{"model-00001-of-00002.safetensors", Shard("a", "x")},
                               {"model-00002-of-00002.safetensors", Shard("b", "x")},
                               {"model-00001-of-00003.safetensors", Shard("c", "x")}}));
  ASSERT_EQ(checkpoint.root.members.size(), 2U);
  EXPECT_EQ(checkpoint.root.members[1].key.text, "b");
  EXPECT_THAT(checkpoint.warnings, ElementsAre(HasSubstr("'model-00001-of-00003.safetensors'")));
}

TEST(HuggingFace, LooksAtNoHiddenIndex) {
  Files files = TwoShards();
  files["._model.safetensors.index.json"] = "Mac OS X";
  EXPECT_EQ(ErrorOf(files), "no error");
}

TEST(HuggingFace, ShowsATensorThatIsNotInTheIndex) {
  Files files = TwoShards();
  files[std::string(kIndex)] = IndexOf(R"("a":"1")");
  files["1"] = SafetensorsFile(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                               R"("x":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})",
                               "aaaaxx");
  const Checkpoint checkpoint = ReadCheckpoint(FolderOf(files));
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "x").data), "xx");
  EXPECT_THAT(TensorAt(checkpoint, "x").annotations,
              ElementsAre(Pair("file", "\"1\""), Pair("not_in_index", "true")));
  EXPECT_THAT(checkpoint.warnings, IsEmpty());
}

TEST(HuggingFace, TakesATensorOfTwoShardsFromTheOneOfTheIndex) {
  Files files = TwoShards();
  files["1"] = SafetensorsFile(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                               R"("b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})",
                               "aaaaXX");
  const Checkpoint checkpoint = ReadCheckpoint(FolderOf(files));
  EXPECT_EQ(checkpoint.root.members.size(), 2U);
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "b").data), "bb");
  EXPECT_THAT(checkpoint.warnings,
              ElementsAre("1: 1 tensor is ignored, because the index has them in other files"));
}

TEST(HuggingFace, LosesTheTensorsOfAMissingShardOnly) {
  Files files = TwoShards();
  files.erase("2");
  files[std::string(kIndex)] = IndexOf(R"("a":"1","c":"2","b":"2")");
  const Checkpoint checkpoint = ReadCheckpoint(FolderOf(files));
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "a").data), "aaaa");
  const Tensor& lost = TensorAt(checkpoint, "b");
  EXPECT_EQ(MessageOf(lost.error), "2: no such file");
  EXPECT_EQ(lost.foreign_dtype, "unknown");
  EXPECT_EQ(lost.data.length, 1U);
  EXPECT_THAT(lost.annotations, ElementsAre(Pair("file", "\"2\"")));
  EXPECT_THAT(checkpoint.warnings, ElementsAre("2: no such file: 2 tensors are missing"));
  EXPECT_THAT(checkpoint.annotations, Contains(Pair("lost", R"(["b","c"])")));
}

TEST(HuggingFace, SkipsOnlyTheTensorsOfACorruptShard) {
  Files files = TwoShards();
  files["2"] += "x";
  const Checkpoint checkpoint = ReadCheckpoint(FolderOf(files));
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "a").data), "aaaa");
  EXPECT_THAT(
      checkpoint.warnings,
      ElementsAre("2: the tensors need 2 bytes of data, but the file has 3: 1 tensor is missing"));
}

TEST(HuggingFace, LosesATensorThatItsShardDoesNotHave) {
  Files files = TwoShards();
  files[std::string(kIndex)] = IndexOf(R"("a":"1","b":"2","c":"2")");
  const Checkpoint checkpoint = ReadCheckpoint(FolderOf(files));
  EXPECT_EQ(MessageOf(TensorAt(checkpoint, "c").error), "not found in 2");
  EXPECT_THAT(checkpoint.warnings, ElementsAre("2: incomplete: 1 tensor is missing"));
}

TEST(HuggingFace, LosesATensorThatIsInAnotherShardThanTheIndexSays) {
  Files files = TwoShards();
  files[std::string(kIndex)] = IndexOf(R"("a":"1","b":"1","c":"2")");
  files["2"] = SafetensorsFile(R"({"b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                               R"("c":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})",
                               "bbbbcc");
  const Checkpoint checkpoint = ReadCheckpoint(FolderOf(files));
  EXPECT_EQ(MessageOf(TensorAt(checkpoint, "b").error), "not found in 1");
}

TEST(HuggingFace, ReportsACorruptTensorInAShard) {
  Files files = TwoShards();
  const std::string pickle = PickleWriter()
                                 .EmptyDict()
                                 .Text("b")
                                 .Tensor("Byte", "0", 2, {.offset = 0, .shape = {2}, .stride = {1}})
                                 .SetItem()
                                 .Text("bad")
                                 .Tensor("Byte", "0", 2, {.offset = 0, .shape = {4}, .stride = {1}})
                                 .SetItem()
                                 .Finish();
  const std::vector<std::string> storages = {"bb"};
  const ByteSourcePtr torch = TorchArchive(pickle, storages);
  files["2"] = ReadString(*torch, 0, torch->size());
  const Checkpoint checkpoint = ReadCheckpoint(FolderOf(files));
  ASSERT_EQ(checkpoint.warnings.size(), 1U);
  EXPECT_THAT(checkpoint.warnings.front(), testing::StartsWith("2: "));
  EXPECT_TRUE(TensorAt(checkpoint, "bad").error);
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "b").data), "bb");
}

TEST(HuggingFace, WarnsOfMissingTensorsFirst) {
  Files files = TwoShards();
  files[std::string(kIndex)] = IndexOf(R"("a":"1","b":"2","c":"3")");
  files["1"] = SafetensorsFile(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                               R"("b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})",
                               "aaaaXX");
  EXPECT_THAT(ReadCheckpoint(FolderOf(files)).warnings,
              ElementsAre("1: 1 tensor is ignored, because the index has them in other files",
                          "3: no such file: 1 tensor is missing"));
}

TEST(HuggingFace, FailsIfNoShardCanBeRead) {
  EXPECT_THAT(
      [] {
        ReadCheckpoint(FolderOf({{std::string(kIndex), IndexOf(R"("a":"1","b":"2")")}}));
      },
      Throws<Error>(
          AllOf(Property(&Error::what, StrEq("folder: model.safetensors.index.json: cannot read "
                                             "any of the 2 files: 1: no such file")),
                Property(&Error::code, ENOENT))));
}

TEST(HuggingFace, TakesNoIndexForAShard) {
  Files files = TwoShards();
  files[std::string(kIndex)] = IndexOf(R"("a":"1","b":"model.safetensors.index.json")");
  EXPECT_THAT(
      ReadCheckpoint(FolderOf(files)).warnings,
      ElementsAre("model.safetensors.index.json: not a checkpoint in a supported format: it "
                  "is text that looks like JSON: 1 tensor is missing"));
}

TEST(HuggingFace, NamesTheIndexOnceInAMessage) {
  Files files = TwoShards();
  files[std::string(kIndex)] = "{}";
  EXPECT_THAT([&] { ReadCheckpoint(FileOf(files, std::string(kIndex))); },
              ThrowsMessage<Error>("memory: names no tensors"));
}

TEST(HuggingFace, RefusesAShardInAnotherDirectory) {
  EXPECT_EQ(
      ErrorOfIndex(IndexOf(R"("a":"../1")")),
      "folder: model.safetensors.index.json: 'a' is in '../1', which is not the name of a file in "
      "the directory");
}

TEST(HuggingFace, RefusesAShardWithAnAbsoluteName) {
  EXPECT_EQ(
      ErrorOfIndex(IndexOf(R"("a":"/etc/passwd")")),
      "folder: model.safetensors.index.json: 'a' is in '/etc/passwd', which is not the name of a "
      "file in the directory");
}

TEST(HuggingFace, RefusesAShardInASubdirectory) {
  EXPECT_EQ(
      ErrorOfIndex(IndexOf(R"("a":"shards/1")")),
      "folder: model.safetensors.index.json: 'a' is in 'shards/1', which is not the name of a file "
      "in the directory");
}

TEST(HuggingFace, RefusesAShardWithABackslash) {
  EXPECT_EQ(
      ErrorOfIndex(IndexOf(R"("a":"x\\1")")),
      "folder: model.safetensors.index.json: 'a' is in 'x\\1', which is not the name of a file in "
      "the directory");
}

TEST(HuggingFace, RefusesAShardWithANul) {
  EXPECT_EQ(ErrorOfIndex(IndexOf(R"("a":"1\u0000.txt")")),
            "folder: model.safetensors.index.json: 'a' is in '1?.txt', which is not the name of a "
            "file in "
            "the directory");
}

TEST(HuggingFace, RefusesAShardWithoutAName) {
  EXPECT_EQ(
      ErrorOfIndex(IndexOf(R"("a":"")")),
      "folder: model.safetensors.index.json: 'a' is in '', which is not the name of a file in the "
      "directory");
}

TEST(HuggingFace, RefusesAShardWhoseNameNoFileCanHave) {
  EXPECT_EQ(ErrorOfIndex(IndexOf("\"a\":\"" + std::string(1025, 'x') + "\"")),
            "folder: model.safetensors.index.json: 'a' is in '" + std::string(100, 'x') +
                "...', which is not the name of a file in the directory");
}

TEST(HuggingFace, RefusesAShardThatIsNoText) {
  EXPECT_EQ(
      ErrorOfIndex(IndexOf(R"("a":["1"])")),
      "folder: model.safetensors.index.json: in its weight_map 'a' is a list, but must be the "
      "name of a file");
}

TEST(HuggingFace, RefusesAMapThatIsNoObject) {
  EXPECT_EQ(
      ErrorOfIndex(R"({"weight_map":"1"})"),
      "folder: model.safetensors.index.json: its weight_map is a text, but must be an object");
}

TEST(HuggingFace, RefusesAnIndexThatIsNoObject) {
  EXPECT_EQ(ErrorOfIndex(R"(["a"])"), "folder: model.safetensors.index.json: is not a JSON object");
}

TEST(HuggingFace, RefusesAnIndexThatIsNoJson) {
  EXPECT_EQ(ErrorOfIndex("version https://git-lfs"),
            "folder: model.safetensors.index.json: invalid JSON at byte 0, near 'v'");
}

TEST(HuggingFace, RefusesATensorThatIsInTheMapTwice) {
  EXPECT_EQ(ErrorOfIndex(IndexOf(R"("a":"1","a":"2")")),
            "folder: model.safetensors.index.json: 'a' occurs twice");
}

TEST(HuggingFace, RefusesTwoMaps) {
  EXPECT_EQ(ErrorOfIndex(R"({"weight_map":{"a":"1"},"weight_map":{"a":"2"}})"),
            "folder: model.safetensors.index.json: 'weight_map' occurs twice");
}

TEST(HuggingFace, RefusesAMapWithoutTensors) {
  EXPECT_EQ(ErrorOfIndex(IndexOf("")), "folder: model.safetensors.index.json: names no tensors");
}

TEST(HuggingFace, RefusesAnObjectThatIsNoMap) {
  EXPECT_EQ(ErrorOfIndex(R"({"a":"1","dims":[3]})"),
            "folder: model.safetensors.index.json: has no weight_map, and its member 'dims' is not "
            "the name of a file");
}

TEST(HuggingFace, IgnoresOtherMembersBesideTheMap) {
  EXPECT_EQ(
      ErrorOfIndex(R"({"x":["y"],"v":1,"weight_map":{"a":"1","b":"2"},"t":{"weight_map":0}})"),
      "no error");
}

TEST(HuggingFace, RefusesMoreThanTenThousandShards) {
  std::string map;
  for (int i = 0; i <= 10'000; ++i) {
    map += fmt::format(R"({}"{}":"{}")", i == 0 ? "" : ",", i, i);
  }
  EXPECT_EQ(ErrorOfIndex(IndexOf(map)),
            "folder: model.safetensors.index.json: names more than 10000 files");
}

}  // namespace
}  // namespace ckptfs
