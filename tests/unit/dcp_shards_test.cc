#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/detect.h"
#include "parser/format.h"
#include "parser/io/folder.h"
#include "tests/support/memory_folder.h"
#include "tests/support/pickle_writer.h"
#include "tests/support/reading.h"
#include "tests/support/safetensors.h"
#include "tests/support/sources.h"

namespace ckptfs {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;

// A file with one tensor of bytes, and the metadata with its position. `sharding` has single quotes
// in place of double ones.
std::string Shard(const std::string& key, const std::string& shape, const std::string& data,
                  const std::string& sharding) {
  std::string escaped;
  for (const char c : sharding) escaped += c == '\'' ? "\\\"" : std::string(1, c);
  return SafetensorsFile(R"({"__metadata__":{"DCP_VERSION":"1.0","DCP_SHARDING_INFO":")" + escaped +
                             "\"}," + SafetensorsEntry(key, "U8", "[" + shape + "]", data.size()) +
                             "}",
                         data);
}

constexpr std::string_view kFirst = "shard-00001-model-00001-of-00001.safetensors";
constexpr std::string_view kSecond = "shard-00002-model-00001-of-00001.safetensors";

// A matrix with two rows, whose columns are in two files.
Files Columns() {
  return {{std::string(kFirst), Shard("w", "2,2", "abde", "{'w':{'saved_offsets':[0,0]}}")},
          {std::string(kSecond), Shard("w", "2,1", "cf", "{'w':{'saved_offsets':[0,2]}}")}};
}

TEST(DcpShards, PutsChunksTogether) {
  const Checkpoint checkpoint = Read(Columns());
  const Tensor& tensor = TensorAt(checkpoint, "w");
  EXPECT_EQ(checkpoint.format, "dcp_shards");
  EXPECT_EQ(tensor.shape, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(ReadString(tensor.data), "abcdef");
  EXPECT_THAT(checkpoint.annotations, Contains(Annotation("dcp_version", "\"1.0\"")));
  EXPECT_THAT(checkpoint.warnings, IsEmpty());
}

TEST(DcpShards, UsesTheNameInTheMetadata) {
  Files files = Columns();
  files[std::string(kSecond)] =
      Shard("w.__dcp_shard_0", "2,1", "cf",
            "{'w.__dcp_shard_0':{'logical_fqn':'w','saved_offsets':[0,2]}}");
  EXPECT_EQ(TextOf(Read(files), "w"), "abcdef");
}

TEST(DcpShards, ShowsAWholeTensorWhereItIs) {
  Files files = Columns();
  files["other.safetensors"] =
      SafetensorsFile(R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "xy");
  const Checkpoint checkpoint = Read(files);
  EXPECT_EQ(TextOf(checkpoint, "b"), "xy");
  EXPECT_EQ(TensorAt(checkpoint, "b").member, "other.safetensors");
  EXPECT_TRUE(TensorAt(checkpoint, "b").is_in_file);
}

// Counts the files that are opened.
class CountingFolder final : public ForwardingFolder {
 public:
  CountingFolder(FolderPtr folder, int& opened)
      : ForwardingFolder(std::move(folder)), opened_(opened) {}

  ByteSourcePtr Open(const std::string& name) const override {
    ++opened_;
    return ForwardingFolder::Open(name);
  }

 private:
  int& opened_;
};

TEST(DcpShards, AreFoundAmongManyFiles) {
  Files files = Columns();
  for (int i = 0; i < 1000; ++i) {
    files[fmt::format("model-{}.safetensors", i)] = SafetensorsFile("{}", "");
  }
  EXPECT_EQ(TextOf(Read(files), "w"), "abcdef");
}

TEST(DcpShards, AreSearchedInFewFiles) {
  Files files;
  for (int i = 0; i < 1000; ++i) {
    files[fmt::format("model-{}.safetensors", i)] = SafetensorsFile("{}", "");
  }
  int opened = 0;
  const CountingFolder folder(std::make_shared<MemoryFolder>(files), opened);
  const auto format = std::ranges::find(FolderFormats(), "dcp_shards", &FolderFormat::name);
  EXPECT_EQ((*format)->find(folder, folder.List()), "");
  EXPECT_LE(opened, 32);
}

TEST(DcpShards, ReadsOneFileByItselfAsAnyOther) {
  const Checkpoint checkpoint = ReadCheckpoint(FileOf(Columns(), std::string(kFirst)));
  EXPECT_EQ(checkpoint.format, "safetensors");
  EXPECT_EQ(TextOf(checkpoint, "w"), "abde");
}

TEST(DcpShards, WarnsOfAMissingNumber) {
  Files files = Columns();
  files["shard-00005-model-00001-of-00001.safetensors"] =
      Shard("b", "1", "x", "{'b':{'saved_offsets':[0]}}");
  EXPECT_THAT(Read(files).warnings,
              ElementsAre("shard 5 found, but not shard 3, which may have tensors"));
}

TEST(DcpShards, ReadsTheRestWithoutACorruptFile) {
  Files files = Columns();
  files[std::string(kFirst)] = "damaged";
  const Checkpoint checkpoint = Read(files);
  EXPECT_EQ(ReadString(*TensorAt(checkpoint, "w").data.source, 2, 1), "c");
  EXPECT_FALSE(TensorAt(checkpoint, "w").is_complete);
  EXPECT_EQ(checkpoint.warnings.size(), 2U);
}

TEST(DcpShards, RejectsAFileWithUnlistedTensors) {
  Files files = Columns();
  files[std::string(kSecond)] = Shard("w", "2,1", "cf", "{'b':{'saved_offsets':[0,2]}}");
  EXPECT_THAT(Read(files).warnings,
              Contains("'shard-00002-model-00001-of-00001.safetensors': DCP_SHARDING_INFO has no "
                       "entry for 'w': its tensors are missing"));
}

TEST(DcpShards, LosesATensorThatTwoWholeFilesHave) {
  Files files = Columns();
  files["a.safetensors"] = files["b.safetensors"] =
      SafetensorsFile(R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "xy");
  EXPECT_EQ(MessageOf(TensorAt(Read(files), "b").error), "is in several files, which is ambiguous");
}

TEST(DcpShards, LosesAChunkOfAnotherType) {
  Files files = Columns();
  std::string& second = files[std::string(kSecond)];
  second.replace(second.find("U8"), 2, "I8");
  EXPECT_THAT(Read(files).warnings,
              ElementsAre("'shard-00002-model-00001-of-00001.safetensors': missing 'w': is "
                          "of int8, but should be of uint8"));
}

TEST(DcpShards, LosesATensorWhoseChunksHaveDifferentDimensions) {
  Files files = Columns();
  files["b.safetensors"] = Shard("b", "1", "x", "{'b':{'saved_offsets':[0]}}");
  files["c.safetensors"] = Shard("b", "1,1", "x", "{'b':{'saved_offsets':[0,1]}}");
  EXPECT_EQ(MessageOf(TensorAt(Read(files), "b").error),
            "its chunk of [1,1] at [0,1] has not as many dimensions as its shape, [1]");
}

TEST(DcpShards, LosesATensorWithAnOffsetBeyondAllNumbers) {
  Files files = Columns();
  files["b.safetensors"] = Shard("b", "1", "x", "{'b':{'saved_offsets':[18446744073709551615]}}");
  EXPECT_EQ(MessageOf(TensorAt(Read(files), "b").error),
            "its chunk of [1] at [18446744073709551615] reaches beyond its shape, [0]");
}

// Returns the error for a single file with this sharding.
std::string DamageOf(const std::string& sharding) {
  Files files = Columns();
  files[std::string(kSecond)] = Shard("w", "2,1", "cf", sharding);
  return Read(files).warnings.at(0);
}

TEST(DcpShards, RefusesShardingThatIsNoJson) {
  EXPECT_THAT(
      DamageOf("{'w'"),
      testing::HasSubstr("DCP_SHARDING_INFO: invalid JSON at byte 4: unexpected end of text"));
}

TEST(DcpShards, RefusesShardingWithoutObjects) {
  EXPECT_THAT(
      DamageOf("{'w':[0,2]}"),
      testing::HasSubstr("DCP_SHARDING_INFO: is not an object with an object for each tensor"));
}

TEST(DcpShards, RefusesShardingWithoutOffsets) {
  EXPECT_THAT(DamageOf("{'w':{'x':[{}]}}"),
              testing::HasSubstr("DCP_SHARDING_INFO: 'w' has no saved_offsets"));
}

TEST(DcpShards, RefusesNegativeOffsets) {
  EXPECT_THAT(DamageOf("{'w':{'saved_offsets':[0,-2]}}"),
              testing::HasSubstr("'w' has saved_offsets that are not a list of numbers"));
}

TEST(DcpShards, RefusesFilesOfWhichNoneCanBeUsed) {
  EXPECT_EQ(
      ErrorOf({{std::string(kFirst), Shard("w", "1", "a", "[]")}}),
      "folder: shard-00001-model-00001-of-00001.safetensors: "
      "'shard-00001-model-00001-of-00001.safetensors': DCP_SHARDING_INFO: is not an object with "
      "an object for each tensor: its tensors are missing");
}

}  // namespace
}  // namespace ckptfs
