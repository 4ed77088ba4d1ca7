#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cerrno>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "parser/base/error.h"
#include "parser/detect.h"
#include "parser/io/simple_sources.h"
#include "tests/support/npy.h"
#include "tests/support/pickle_writer.h"
#include "tests/support/reading.h"
#include "tests/support/safetensors.h"
#include "tests/support/sources.h"
#include "tests/support/tar.h"
#include "tests/support/zip_writer.h"

namespace ckptfs {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Key;

Checkpoint Open(const std::string& file) {
  return ReadCheckpoint(std::make_shared<MemorySource>(file));
}

Error ErrorIn(const std::string& file) try {
  Open(file);
  return {0, "no error"};
} catch (const Error& e) {
  return e;
}

// A file of safetensors with the tensor "w" of four bytes.
std::string Model(std::string_view data = "abcd") {
  return SafetensorsFile(R"({"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
                         std::string(data));
}

// A file of torch.save with the same.
std::string TorchModel(std::string_view data = "abcd") {
  const std::string pickle = PickleWriter()
                                 .EmptyDict()
                                 .Text("w")
                                 .Tensor("Byte", "0", 4, {.offset = 0, .shape = {4}, .stride = {1}})
                                 .SetItem()
                                 .Finish();
  const std::vector<std::string> storages = {std::string(data)};
  const ByteSourcePtr file = TorchArchive(pickle, storages);
  return ReadString(*file, 0, file->size());
}

std::string Gzip(const std::string& data) {
  const auto number = [](size_t n) {
    const auto small = static_cast<uint32_t>(n);
    return std::string(reinterpret_cast<const char*>(&small), sizeof small);
  };
  return std::string("\x1f\x8b\x08\x08\0\0\0\0\0\x03name\0", 15) + Deflate(data) +
         number(Crc(data)) + number(data.size());
}

TEST(ZipOfCheckpoints, HasEachMemberInADirectory) {
  const std::string file = ZipWriter()
                               .Add("policy.pth", TorchModel())
                               .Add("data", R"({"gamma": 0.99, "n": NaN})")
                               .Add("_stable_baselines3_version", "2.3.0")
                               .Add("a/b/model.safetensors", Model("efgh"))
                               .Finish();
  const Checkpoint checkpoint = Open(file);
  EXPECT_EQ(checkpoint.format, "zip");
  EXPECT_THAT(checkpoint.warnings, IsEmpty());
  EXPECT_EQ(TextOf(checkpoint, "policy.pth/w"), "abcd");
  EXPECT_EQ(TextOf(checkpoint, "a/b/model.safetensors/w"), "efgh");
  EXPECT_EQ(ValueAt(checkpoint, "data").json, R"({"gamma":0.99,"n":"NaN"})");
  EXPECT_EQ(ValueAt(checkpoint, "_stable_baselines3_version").json, R"("2.3.0")");
  EXPECT_FALSE(checkpoint.globals.empty());
  EXPECT_THAT(checkpoint.annotations, Contains(Key(std::string_view("files"))));
  const Tensor& tensor = TensorAt(checkpoint, "policy.pth/w");
  EXPECT_EQ(tensor.member, "policy.pth/data/0");
  EXPECT_TRUE(tensor.is_in_file);
  EXPECT_EQ(file.substr(tensor.file_offset, 4), "abcd");
}

TEST(ZipOfCheckpoints, DecodesDeflatedMembers) {
  const Checkpoint checkpoint = Open(ZipWriter()
                                         .AddDeflated("network.pt", TorchModel())
                                         .AddDeflated("model_params.json", R"({"n_d": 8})")
                                         .Finish());
  EXPECT_EQ(TextOf(checkpoint, "network.pt/w"), "abcd");
  EXPECT_EQ(ValueAt(checkpoint, "model_params.json").json, R"({"n_d":8})");
  EXPECT_FALSE(TensorAt(checkpoint, "network.pt/w").is_in_file);
}

TEST(ZipOfCheckpoints, HasTheArraysOfAnArchiveInIt) {
  const std::string arrays = ZipWriter().Add("w.npy", Npy("'|u1'", "(2,)", "ab")).Finish();
  const Checkpoint checkpoint = Open(
      ZipWriter().Add("data", "{}").Add("parameters", arrays).Add("parameter_list", "[]").Finish());
  EXPECT_EQ(TextOf(checkpoint, "parameters/w"), "ab");
}

TEST(ZipOfCheckpoints, ReportsTheSkippedMembers) {
  const Checkpoint checkpoint = Open(
      ZipWriter().Add("m.safetensors", Model()).Add("image", std::string("\x89PNG\0", 5)).Finish());
  EXPECT_THAT(
      checkpoint.warnings,
      ElementsAre(
          "1 of its files are not checkpoints in a supported format and are ignored: 'image'"));
}

TEST(ZipOfCheckpoints, SkipsACorruptMember) {
  const Checkpoint checkpoint = Open(ZipWriter()
                                         .Add("good.safetensors", Model())
                                         .Add("bad.safetensors", Model().substr(0, 40) + "\xFF")
                                         .Finish());
  EXPECT_EQ(TextOf(checkpoint, "good.safetensors/w"), "abcd");
  ASSERT_EQ(checkpoint.warnings.size(), 1U);
  EXPECT_THAT(checkpoint.warnings[0], testing::StartsWith("bad.safetensors: "));
  EXPECT_THAT(checkpoint.warnings[0], EndsWith(": ignored"));
}

TEST(ZipOfCheckpoints, IsDescribedIfItHasNoCheckpoint) {
  const Error error = ErrorIn(
      ZipWriter().Add("config.json", "{}").Add("model.weights.h5", "\x89HDF\r\n\x1a\n").Finish());
  EXPECT_EQ(error.code(), ENOTSUP);
  EXPECT_THAT(error.what(), HasSubstr("'model.weights.h5': it is an HDF5 file"));
}

TEST(ZipOfCheckpoints, RefusesNamesThatLeaveTheArchive) {
  for (const std::string name : {"../m.safetensors", "/m.safetensors", "a/../m.safetensors"}) {
    EXPECT_EQ(ErrorIn(ZipWriter().Add(name, Model()).Finish()).code(), EBADMSG) << name;
  }
}

TEST(ZipOfCheckpoints, MayHaveAFileAndADirectoryOfOneName) {
  const Checkpoint checkpoint =
      Open(ZipWriter().Add("m", Model()).Add("m/n", Model("efgh")).Finish());
  EXPECT_EQ(checkpoint.root.members.size(), 2U);
}

TEST(ZipOfCheckpoints, OfArchivesInArchivesIsBounded) {
  std::string file = Model();
  for (int i = 0; i < 4; ++i) file = ZipWriter().Add("m", file).Finish();
  EXPECT_EQ(TextOf(Open(file), "m/m/m/m/w"), "abcd");
  file = ZipWriter().Add("m", file).Finish();
  EXPECT_EQ(ErrorIn(file).code(), ENOTSUP);
}

TEST(ZipOfCheckpoints, DecodesNoBomb) {
  const std::string zeros(size_t{64} << 20, '\0');
  const std::string bomb = ZipWriter().AddDeflated("m.safetensors", Model() + zeros).Finish();
  const Error error = ErrorIn(ZipWriter().Add("inner.zip", bomb).Finish());
  EXPECT_EQ(error.code(), ENOTSUP);
  EXPECT_THAT(error.what(), HasSubstr("unpack it first"));
}

TEST(ZipOfCheckpoints, OfManyMembersIsRead) {
  ZipWriter zip;
  for (int i = 0; i < 2'000; ++i) zip.Add("t" + std::to_string(i), "text");
  zip.Add("m", Model());
  EXPECT_EQ(Open(zip.Finish()).root.members.size(), 2'001U);
}

TEST(TarOfCheckpoints, HasEachMemberInADirectory) {
  const std::string file = TarMember({.name = "./", .type = '5'}, "") +
                           TarFile("./model_config.yaml", "a: 1\n") +
                           TarFile("./model_weights.ckpt", TorchModel()) + kTarEnd;
  const Checkpoint checkpoint = Open(file);
  EXPECT_EQ(checkpoint.format, "tar");
  EXPECT_THAT(checkpoint.warnings, IsEmpty());
  EXPECT_EQ(ValueAt(checkpoint, "model_config.yaml").json, R"("a: 1\n")");
  const Tensor& tensor = TensorAt(checkpoint, "model_weights.ckpt/w");
  EXPECT_EQ(file.substr(tensor.file_offset, 4), "abcd");
}

TEST(TarOfCheckpoints, ThatEndsInAZipIsATar) {
  const Checkpoint checkpoint = Open(TarFile("a", Model()) + TarFile("b", TorchModel("efgh")));
  EXPECT_EQ(TextOf(checkpoint, "a/w"), "abcd");
  EXPECT_EQ(TextOf(checkpoint, "b/w"), "efgh");
}

TEST(TarOfCheckpoints, LeavesOutLinks) {
  const Checkpoint checkpoint =
      Open(TarMember({.name = "link", .type = '2'}, "") + TarFile("m", Model()));
  EXPECT_EQ(TextOf(checkpoint, "m/w"), "abcd");
  EXPECT_THAT(checkpoint.warnings, ElementsAre(HasSubstr("a link or a device")));
}

TEST(TarOfCheckpoints, ReadsShardsByTheirIndex) {
  const Checkpoint checkpoint =
      Open(TarFile("d/m.safetensors.index.json", R"({"weight_map":{"w":"1","v":"2"}})") +
           TarFile("d/1", Model()) +
           TarFile("d/2", SafetensorsFile(
                              R"({"v":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "xy")));
  EXPECT_EQ(TextOf(checkpoint, "d/w"), "abcd");
  EXPECT_EQ(TextOf(checkpoint, "d/v"), "xy");
}

TEST(GzipOfCheckpoints, IsTheCheckpointInIt) {
  const Checkpoint checkpoint = Open(Gzip(TarFile("m.ckpt", TorchModel())));
  EXPECT_EQ(checkpoint.format, "tar");
  EXPECT_EQ(TextOf(checkpoint, "m.ckpt/w"), "abcd");
  EXPECT_FALSE(TensorAt(checkpoint, "m.ckpt/w").is_in_file);
  EXPECT_EQ(TextOf(Open(Gzip(Model())), "w"), "abcd");
}

TEST(GzipOfCheckpoints, ThatIsCorruptIsRefused) {
  const std::string file = Gzip(Model());
  EXPECT_EQ(ErrorIn(file.substr(0, file.size() - 12)).code(), EBADMSG);
  EXPECT_EQ(ErrorIn(file.substr(0, 16)).code(), EBADMSG);
  std::string wrong = file;
  wrong[file.size() - 6] ^= 1;  // The CRC-32.
  EXPECT_NE(ErrorIn(wrong).code(), 0);
  EXPECT_EQ(ErrorIn(file + file).code(), ENOTSUP);
}

TEST(GzipOfCheckpoints, DecodesNoBomb) {
  const Error error = ErrorIn(Gzip(Model() + std::string(size_t{64} << 20, '\0')));
  EXPECT_EQ(error.code(), ENOTSUP);
  EXPECT_THAT(error.what(), HasSubstr("unpack it first"));
}

TEST(Pickles, ThatFollowOneAnotherAreAList) {
  const std::string one = PickleWriter().EmptyDict().Text("a").Int(1).SetItem().Finish();
  const Checkpoint checkpoint = Open(one + PickleWriter().Int(7).Finish() + one);
  EXPECT_EQ(checkpoint.root.python_type, "list");
  EXPECT_THAT(checkpoint.warnings, IsEmpty());
  ASSERT_EQ(checkpoint.root.members.size(), 3U);
  EXPECT_EQ(std::get<Value>(checkpoint.root.members[1].content).json, "7");
  EXPECT_EQ(std::get<Value>(checkpoint.root.members[2].content).json, R"({"a":1})");
}

TEST(Pickles, RecordTrailingBytes) {
  const Checkpoint checkpoint = Open(PickleWriter().Int(7).Finish() + "rest");
  EXPECT_EQ(checkpoint.root.members.size(), 1U);
  EXPECT_THAT(checkpoint.warnings,
              ElementsAre("4 bytes follow the pickle and are ignored: they are not a pickle"));
}

TEST(Pickles, BeforeACorruptOneAreKept) {
  const Checkpoint checkpoint = Open(PickleWriter().Int(7).Finish() + "\x80\x02garbage");
  EXPECT_EQ(checkpoint.root.members.size(), 1U);
  EXPECT_THAT(checkpoint.warnings, ElementsAre(testing::StartsWith("pickle 1 at byte ")));
}

TEST(Pickles, ThatEndInAZipAreNoZip) {
  const std::string zip = TorchModel();
  const Checkpoint checkpoint = Open(PickleWriter().Int(7).Finish() + zip);
  EXPECT_EQ(checkpoint.format, "pickle");
}

TEST(Directory, NamesTheCheckpointsThatItLeavesOut) {
  const Checkpoint checkpoint =
      Read({{"model.safetensors.index.json", R"({"weight_map":{"w":"1.safetensors"}})"},
            {"1.safetensors", Model()},
            {"2_Dense/model.safetensors", Model()},
            {"2_Dense/config.json", "{}"},
            {"1_Pooling/config.json", "{}"}});
  EXPECT_THAT(checkpoint.warnings,
              ElementsAre("ignores '2_Dense/', which may hold other tensors: mount it "
                          "separately"));
}

TEST(Directory, OfShardsNamesTheFilesThatItLeavesOut) {
  const Checkpoint checkpoint =
      Read({{"model.safetensors.index.json", R"({"weight_map":{"w":"1.safetensors"}})"},
            {"1.safetensors", Model()},
            {"optimizer.bin", "x"},
            {"README.md", "x"}});
  EXPECT_THAT(checkpoint.warnings, ElementsAre(HasSubstr("'optimizer.bin'")));
}

TEST(Directory, IsThatOfTheCheckpointBesideAnArchive) {
  const Checkpoint checkpoint =
      Read({{"model.safetensors", Model()}, {"data.tar", TarFile("x.safetensors", Model())}});
  EXPECT_EQ(checkpoint.format, "safetensors");
}

}  // namespace
}  // namespace ckptfs
