#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include <string>
#include <string_view>
#include <vector>

#include "parser/base/error.h"
#include "parser/detect.h"
#include "parser/io/simple_sources.h"
#include "tests/support/pickle_writer.h"
#include "tests/support/sources.h"
#include "tests/support/zip_writer.h"

namespace ckptfs {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::ThrowsMessage;

// A dict of the tensor `key` in the storage "0".
std::string OneTensor(std::string_view key) {
  return PickleWriter()
      .EmptyDict()
      .Text(key)
      .Tensor("Byte", "0", 4, {.offset = 0, .shape = {4}, .stride = {1}})
      .SetItem()
      .Finish();
}

// A tuple of the tensor in the storage "0".
std::string OneConstant() {
  return PickleWriter()
      .Mark()
      .Tensor("Byte", "0", 4, {.offset = 0, .shape = {4}, .stride = {1}})
      .Tuple()
      .Finish();
}

TEST(Script, FindsTheStoragesOfEachPickleBesideIt) {
  const Checkpoint checkpoint = ReadCheckpoint(ZipWriter()
                                                   .Add("m/data.pkl", OneTensor("w"))
                                                   .Add("m/data/0", "abcd")
                                                   .Add("m/constants.pkl", OneConstant())
                                                   .Add("m/constants/0", "efgh")
                                                   .Source());
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "w").data), "abcd");
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "constants/0").data), "efgh");
}

TEST(Script, HasNoConstantsWhereThereAreNone) {
  const Checkpoint checkpoint =
      ReadCheckpoint(ZipWriter()
                         .Add("m/data.pkl", OneTensor("w"))
                         .Add("m/data/0", "abcd")
                         .Add("m/constants.pkl", PickleWriter().Mark().Tuple().Finish())
                         .Source());
  EXPECT_EQ(checkpoint.root.members.size(), 1U);
}

TEST(Script, SeesThroughTypedContainers) {
  const std::string pickle = PickleWriter()
                                 .EmptyDict()
                                 .Text("l")
                                 .Global("torch.jit._pickle", "build_intlist")
                                 .Mark()
                                 .Raw("](K\1K\2e")
                                 .Tuple()
                                 .Reduce()
                                 .SetItem()
                                 .Finish();
  const Checkpoint checkpoint =
      ReadCheckpoint(ZipWriter()
                         .Add("m/data.pkl", pickle)
                         .Add("m/constants.pkl", PickleWriter().Mark().Tuple().Finish())
                         .Source());
  EXPECT_EQ(ValueAt(checkpoint, "l").json, "[1,2]");
}

TEST(Script, RefusesBrokenConstants) {
  const ByteSourcePtr source = ZipWriter()
                                   .Add("m/data.pkl", OneTensor("w"))
                                   .Add("m/data/0", "abcd")
                                   .Add("m/constants.pkl", "\x80\x02")
                                   .Source();
  EXPECT_THAT([&] { ReadCheckpoint(source); },
              ThrowsMessage<Error>(
                  "memory: constants.pkl: unexpected end of pickle at byte 2: STOP is missing"));
}

TEST(Package, ShowsEachPickleByItsPath) {
  const Checkpoint checkpoint = ReadCheckpoint(ZipWriter()
                                                   .Add("p/a/b/net.pkl", OneTensor("w"))
                                                   .Add("p/a/one.pkl", OneTensor("v"))
                                                   .Add("p/.data/0.storage", "abcd")
                                                   .Add("p/.data/extern_modules", "")
                                                   .Source());
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "a/b/net/w").data), "abcd");
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "a/one/v").data), "abcd");
}

TEST(Package, SkipsACorruptPickle) {
  const Checkpoint checkpoint = ReadCheckpoint(ZipWriter()
                                                   .Add("p/a/bad.pkl", "\xff")
                                                   .Add("p/a/one.pkl", OneTensor("v"))
                                                   .Add("p/.data/0.storage", "abcd")
                                                   .Add("p/.data/extern_modules", "")
                                                   .Source());
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "a/one/v").data), "abcd");
  EXPECT_THAT(checkpoint.warnings, ElementsAre(HasSubstr("a/bad.pkl: ")));
}

TEST(Package, IsRefusedIfEveryPickleIsCorrupt) {
  const ByteSourcePtr source =
      ZipWriter().Add("p/a/bad.pkl", "\x80\x02").Add("p/.data/extern_modules", "").Source();
  EXPECT_THAT([&] { ReadCheckpoint(source); },
              ThrowsMessage<Error>(
                  "memory: a/bad.pkl: unexpected end of pickle at byte 2: STOP is missing"));
}

// An archive of torch.export with this table of weights, and one weight of four bytes.
ByteSourcePtr Exported(std::string_view table) {
  return ZipWriter()
      .Add("x/archive_format", "pt2")
      .Add("x/data/weights/weight_0", "abcd")
      .Add("x/data/weights/model_weights_config.json", table)
      .Source();
}

// The entry of the tensor "t" in a table of weights.
std::string Weight(std::string_view sizes, std::string_view strides, std::string_view offset = "0",
                   std::string_view dtype = "1") {
  return std::string(R"("t":{"path_name":"weight_0","is_param":false,"use_pickle":false,)") +
         R"("tensor_meta":{"layout":7,"requires_grad":true,"dtype":)" + std::string(dtype) +
         R"(,"sizes":)" + std::string(sizes) + R"(,"strides":)" + std::string(strides) +
         R"(,"storage_offset":{"as_int":)" + std::string(offset) + "}}}";
}

// A table of that alone.
std::string Table(std::string_view sizes, std::string_view strides, std::string_view offset = "0",
                  std::string_view dtype = "1") {
  return R"({"config":{)" + Weight(sizes, strides, offset, dtype) + "}}";
}

TEST(Export, ShowsAViewOfAWeight) {
  const Checkpoint checkpoint = ReadCheckpoint(
      Exported(Table(R"([{"as_int":2},{"as_int":2}])", R"([{"as_int":1},{"as_int":2}])")));
  const Tensor& tensor = TensorAt(checkpoint, "state_dict/t");
  EXPECT_EQ(ReadString(tensor.data), "acbd");
  EXPECT_EQ(tensor.annotations,
            (std::vector<Annotation>{{"requires_grad", "true"}, {"stride", "[1,2]"}}));
}

TEST(Export, DecodesADeflatedWeightOnceForAllOfItsTensors) {
  const std::string first = Weight(R"([{"as_int":4}])", R"([{"as_int":1}])");
  std::string second = first;
  second.replace(0, 3, "\"u\"");
  std::string third = Weight(R"([{"as_int":2}])", R"([{"as_int":1}])", "2");
  third.replace(0, 3, "\"v\"");
  const Checkpoint checkpoint =
      ReadCheckpoint(ZipWriter()
                         .Add("x/archive_format", "pt2")
                         .AddDeflated("x/data/weights/weight_0", "abcd")
                         .Add("x/data/weights/model_weights_config.json",
                              R"({"config":{)" + first + "," + second + "," + third + "}}")
                         .Source());
  const Extent& data = TensorAt(checkpoint, "state_dict/t").data;
  EXPECT_EQ(TensorAt(checkpoint, "state_dict/u").data.source, data.source);
  EXPECT_EQ(TensorAt(checkpoint, "state_dict/v").data.source, data.source);
  EXPECT_EQ(ReadString(data), "abcd");
  EXPECT_EQ(TextOf(checkpoint, "state_dict/v"), "cd");
}

TEST(Export, AWeightThatIsTooShortHasAnError) {
  const Checkpoint checkpoint =
      ReadCheckpoint(Exported(Table(R"([{"as_int":2}])", R"([{"as_int":1}])", "3")));
  EXPECT_EQ(MessageOf(TensorAt(checkpoint, "state_dict/t").error),
            "view out of range: 2 bytes from element 3 on (data/weights/weight_0 has 4 bytes)");
  EXPECT_THAT(checkpoint.warnings,
              ElementsAre("tensor 't': view out of range: 2 bytes from element 3 on "
                          "(data/weights/weight_0 has 4 bytes): reading it will fail"));
}

TEST(Export, AnUnknownTypeIsReported) {
  const Checkpoint checkpoint =
      ReadCheckpoint(Exported(Table(R"([{"as_int":2}])", R"([{"as_int":1}])", "0", "99")));
  EXPECT_EQ(MessageOf(ValueAt(checkpoint, "state_dict/t").error), "unsupported type 99");
}

TEST(Export, RefusesANegativeSize) {
  EXPECT_THAT([] { ReadCheckpoint(Exported(Table(R"([{"as_int":-2}])", R"([{"as_int":1}])"))); },
              ThrowsMessage<Error>("memory: data/weights/model_weights_config.json: tensor 't': "
                                   "invalid size, stride or offset '-2'"));
}

TEST(Export, RefusesATableThatIsNoJson) {
  EXPECT_THAT([] { ReadCheckpoint(Exported("{\"config\":")); },
              ThrowsMessage<Error>(HasSubstr("data/weights/model_weights_config.json: ")));
}

TEST(Export, RefusesAnArchiveWithoutWeights) {
  const ByteSourcePtr source = ZipWriter().Add("x/archive_format", "pt2").Source();
  EXPECT_THAT([&] { ReadCheckpoint(source); },
              ThrowsMessage<Error>("memory: is an archive of torch.export without weights"));
}

TEST(Export, ShowsTheStateOfOneBefore29) {
  const std::string saved =
      ZipWriter().Add("s/data.pkl", OneTensor("w")).Add("s/data/0", "abcd").Finish();
  const Checkpoint checkpoint =
      ReadCheckpoint(ZipWriter().Add("serialized_state_dict.pt", saved).Source());
  const Tensor& tensor = TensorAt(checkpoint, "state_dict/w");
  EXPECT_EQ(ReadString(tensor.data), "abcd");
  EXPECT_TRUE(tensor.is_in_file);
}

TEST(Globals, AreListedWithThoseThatWeightsOnlyRefuses) {
  const std::string pickle = PickleWriter()
                                 .EmptyDict()
                                 .Text("a")
                                 .Global("posix", "system")
                                 .Mark()
                                 .Text("true")
                                 .Tuple()
                                 .Reduce()
                                 .SetItem()
                                 .Text("b")
                                 .Global("torch", "float32")
                                 .SetItem()
                                 .Finish();
  const Checkpoint checkpoint = ReadCheckpoint(TorchArchive(pickle, {}));
  EXPECT_THAT(checkpoint.globals,
              ElementsAre(Global{"posix.system", true}, Global{"torch.float32", false}));
}

TEST(PlainPickle, ShowsValuesOfAFileThatTorchDidNotWrite) {
  const std::string pickle = PickleWriter().EmptyDict().Text("a").Int(3).SetItem().Finish();
  const Checkpoint checkpoint = ReadCheckpoint(std::make_shared<MemorySource>(pickle));
  EXPECT_EQ(checkpoint.format, "pickle");
  EXPECT_EQ(ValueAt(checkpoint, "a").json, "3");
}

TEST(PlainPickle, HasNoStorages) {
  EXPECT_THAT([] { ReadCheckpoint(std::make_shared<MemorySource>(OneTensor("w"))); },
              ThrowsMessage<Error>("memory: tensor 'w': a plain pickle has no storages"));
}

TEST(Script, HasTheExtraFilesOfItsWriter) {
  const Checkpoint checkpoint = ReadCheckpoint(ZipWriter()
                                                   .Add("m/data.pkl", OneTensor("w"))
                                                   .Add("m/data/0", "abcd")
                                                   .Add("m/constants.pkl", OneConstant())
                                                   .Add("m/constants/0", "efgh")
                                                   .Add("m/extra/classes.txt", "cat\ndog")
                                                   .Add("m/extra/a/raw", std::string("\0\xFF", 2))
                                                   .Source());
  const Group& extra = *std::get<std::unique_ptr<Group>>(At(checkpoint.root, "extra").content);
  ASSERT_EQ(extra.members.size(), 2U);
  EXPECT_EQ(extra.members[0].key.text, "classes.txt");
  EXPECT_EQ(std::get<Value>(extra.members[0].content).json, R"("cat\ndog")");
  EXPECT_EQ(extra.members[1].key.text, "a/raw");
  const auto& raw = std::get<Tensor>(extra.members[1].content);
  EXPECT_EQ(raw.dtype, Dtype::kUint8);
  EXPECT_EQ(ReadString(raw.data), std::string("\0\xFF", 2));
}

// A file of torch.save with the bare tensor "abcd".
std::string SavedTensor() {
  const std::string pickle =
      PickleWriter()
          .Tensor("Byte", "0", 4, {.offset = 0, .shape = {2, 2}, .stride = {2, 1}})
          .Finish();
  const std::vector<std::string> storages = {"abcd"};
  const ByteSourcePtr file = TorchArchive(pickle, storages);
  return ReadString(*file, 0, file->size());
}

TEST(Compiled, HasTheWeightsThatItsConfigNames) {
  const Checkpoint checkpoint = ReadCheckpoint(
      ZipWriter()
          .Add("m/archive_format", "pt2")
          .Add("m/data/aotinductor/model/x.wrapper.so", "ELF")
          .Add("m/data/weights/weight_0", SavedTensor())
          .Add("m/data/aotinductor/model/weights_config.json",
               R"({"l.weight":["weight_0",[2,2],[2,1],0],"l.t":["weight_0",[2,2],[1,2],0],)"
               R"("l.row":["weight_0",[2],[1],2],"bad":["weight_0",[3],[1],2]})")
          .Source());
  EXPECT_EQ(TextOf(checkpoint, "weights/l.weight"), "abcd");
  EXPECT_EQ(TextOf(checkpoint, "weights/l.t"), "acbd");
  EXPECT_EQ(TextOf(checkpoint, "weights/l.row"), "cd");
  EXPECT_TRUE(TensorAt(checkpoint, "weights/bad").error);
  EXPECT_EQ(checkpoint.warnings.size(), 1U);
}

TEST(Compiled, HasWeightsWithoutAConfigAsWhatTheyAre) {
  const Checkpoint checkpoint = ReadCheckpoint(ZipWriter()
                                                   .Add("m/archive_format", "pt2")
                                                   .Add("m/data/aotinductor/model/x.so", "ELF")
                                                   .Add("m/data/weights/weight_0", SavedTensor())
                                                   .Add("m/data/weights/weight_1", "raw")
                                                   .Add("m/data/aotinductor/model/x.blob", "all")
                                                   .Source());
  EXPECT_EQ(TensorAt(checkpoint, "weights/weight_0").shape, (std::vector<uint64_t>{2, 2}));
  EXPECT_EQ(TextOf(checkpoint, "weights/weight_1"), "raw");
  EXPECT_EQ(TextOf(checkpoint, "weights/x.blob"), "all");
}

TEST(Compiled, ReportsWhereMissingWeightsAre) {
  try {
    ReadCheckpoint(ZipWriter()
                       .Add("m/archive_format", "pt2")
                       .Add("m/data/aotinductor/model/x.so", "ELF")
                       .Source());
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ENOTSUP);
    EXPECT_THAT(e.what(), HasSubstr("AOTInductor"));
  }
}

}  // namespace
}  // namespace ckptfs
