#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "parser/base/error.h"
#include "parser/open.h"
#include "tests/support/pickle_writer.h"
#include "tests/support/sources.h"
#include "tests/support/zip_writer.h"

namespace ckptfs {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using Storages = std::vector<std::string>;
using View = PickleWriter::View;

Checkpoint Read(const PickleWriter& pickle, const Storages& storages = {}) {
  return ReadCheckpoint(TorchArchive(pickle.Finish(), storages));
}

// A dict of one tensor `w`.
PickleWriter OneTensor(const View& view, int64_t size = 4) {
  return PickleWriter().EmptyDict().Text("w").Tensor("Byte", "0", size, view).SetItem();
}

// A dict of a good tensor and one that is `view` of the same four bytes.
PickleWriter GoodAnd(const View& view) {
  return PickleWriter()
      .EmptyDict()
      .Text("good")
      .Tensor("Byte", "0", 4, {.offset = 0, .shape = {4}, .stride = {1}})
      .SetItem()
      .Text("bad")
      .Tensor("Byte", "0", 4, view)
      .SetItem();
}

std::string ErrorOfBad(const View& view) {
  const Checkpoint checkpoint = Read(GoodAnd(view), {"abcd"});
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "good").data), "abcd");
  EXPECT_EQ(checkpoint.warnings.size(), 1U);
  return std::string(MessageOf(TensorAt(checkpoint, "bad").error));
}

TEST(Torch, ReadsATensorInADict) {
  const Checkpoint checkpoint = Read(
      OneTensor({.offset = 0, .shape = {2, 2}, .stride = {2, 1}, .requires_grad = true}), {"abcd"});
  const Tensor& tensor = TensorAt(checkpoint, "w");
  EXPECT_EQ(checkpoint.format, "torch");
  EXPECT_EQ(tensor.dtype, Dtype::kUint8);
  EXPECT_EQ(tensor.shape, (std::vector<uint64_t>{2, 2}));
  EXPECT_EQ(ReadString(tensor.data), "abcd");
  EXPECT_EQ(tensor.member, "data/0");
  EXPECT_TRUE(tensor.is_in_file);
  EXPECT_EQ(tensor.annotations, (std::vector<Annotation>{{"requires_grad", "true"}}));
}

TEST(Torch, GathersATransposedTensor) {
  const Checkpoint checkpoint =
      Read(OneTensor({.offset = 0, .shape = {2, 2}, .stride = {1, 2}}), {"abcd"});
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "w").data), "acbd");
  EXPECT_FALSE(TensorAt(checkpoint, "w").is_in_file);
}

TEST(Torch, GivesTiedTensorsOneExtent) {
  const View transposed{.offset = 0, .shape = {2, 2}, .stride = {1, 2}};
  const Checkpoint checkpoint = Read(PickleWriter()
                                         .EmptyDict()
                                         .Text("a")
                                         .Tensor("Byte", "0", 4, transposed)
                                         .SetItem()
                                         .Text("b")
                                         .Tensor("Byte", "0", 4, transposed)
                                         .SetItem(),
                                     {"abcd"});
  EXPECT_EQ(TensorAt(checkpoint, "a").data.source, TensorAt(checkpoint, "b").data.source);
}

TEST(Torch, ShowsABareTensorAsTensor) {
  const Checkpoint checkpoint = Read(
      PickleWriter().Tensor("Byte", "0", 4, {.offset = 1, .shape = {2}, .stride = {1}}), {"abcd"});
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "tensor").data), "bc");
}

TEST(Torch, ShowsABareValueAsValue) {
  EXPECT_EQ(ValueAt(Read(PickleWriter().Int(7)), "value").json, "7");
}

TEST(Torch, ShowsAListAtTheRootByIndex) {
  const Checkpoint checkpoint = Read(PickleWriter().EmptyList().Text("x").Append().None().Append());
  EXPECT_EQ(ValueAt(checkpoint, "0").json, "\"x\"");
  EXPECT_EQ(ValueAt(checkpoint, "1").json, "null");
  EXPECT_EQ(At(checkpoint.root, "1").key.kind, Key::Kind::kNumber);
}

TEST(Torch, KeepsAnIntKeyBesideATextKey) {
  const Checkpoint checkpoint = Read(
      PickleWriter().EmptyDict().Int(1).Text("int").SetItem().Text("1").Text("text").SetItem());
  ASSERT_EQ(checkpoint.root.members.size(), 2U);
  EXPECT_EQ(checkpoint.root.members[0].key.kind, Key::Kind::kNumber);
  EXPECT_EQ(checkpoint.root.members[1].key.kind, Key::Kind::kText);
}

TEST(Torch, RecordsTheTypesThatJsonLacks) {
  const Checkpoint checkpoint = Read(PickleWriter()
                                         .EmptyDict()
                                         .Text("d")
                                         .EmptyDict()
                                         .Text("betas")
                                         .Mark()
                                         .Float(0.5)
                                         .Float(1)
                                         .Tuple()
                                         .SetItem()
                                         .SetItem());
  const Value& value = ValueAt(checkpoint, "d");
  EXPECT_EQ(value.json, R"({"betas":[0.5,1.0]})");
  EXPECT_EQ(value.annotations,
            (std::vector<Annotation>{{"python_types", R"({"/betas":"tuple"})"}}));
}

TEST(Torch, WritesADictWithMixedKeysAsPairs) {
  const Checkpoint checkpoint = Read(PickleWriter()
                                         .EmptyDict()
                                         .Text("d")
                                         .EmptyDict()
                                         .Int(1)
                                         .Text("i")
                                         .SetItem()
                                         .Text("1")
                                         .Text("s")
                                         .SetItem()
                                         .SetItem());
  EXPECT_EQ(ValueAt(checkpoint, "d").json, R"([[1,"i"],["1","s"]])");
  EXPECT_EQ(ValueAt(checkpoint, "d").python_type, "dict[pairs]");
}

TEST(Torch, ShowsAnObjectOfAnUnknownClassWithItsState) {
  const Checkpoint checkpoint = Read(PickleWriter()
                                         .EmptyDict()
                                         .Text("o")
                                         .Global("os", "system")
                                         .Mark()
                                         .Text("touch canary")
                                         .Tuple()
                                         .Reduce()
                                         .SetItem());
  EXPECT_EQ(ValueAt(checkpoint, "o").json,
            R"({"class":"os.system","state":{"args":["touch canary"]}})");
}

TEST(Torch, CollapsesAModuleToTheNamesOfItsStateDict) {
  PickleWriter pickle;
  pickle.Global("torch.nn", "Linear").Raw(")\x81").EmptyDict();
  pickle.Text("training").Bool(true).SetItem();
  pickle.Text("_parameters").EmptyDict().Text("weight");
  pickle.Tensor("Byte", "0", 4, {.offset = 0, .shape = {4}, .stride = {1}}).SetItem().SetItem();
  pickle.Text("_buffers").EmptyDict().SetItem().Text("_modules").EmptyDict().SetItem();
  pickle.Text("_forward_hooks").EmptyDict().SetItem().Build();
  const Checkpoint checkpoint = Read(pickle, {"abcd"});
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "weight").data), "abcd");
  EXPECT_EQ(ValueAt(checkpoint, "training").json, "true");
  EXPECT_EQ(checkpoint.root.members.size(), 2U);
  EXPECT_EQ(checkpoint.root.python_type, "torch.nn.Linear");
}

TEST(Torch, CutsAListThatContainsItself) {
  const Checkpoint checkpoint =
      Read(PickleWriter().EmptyDict().Text("l").Raw("]q\x01h\x01").Append().SetItem());
  EXPECT_EQ(ValueAt(checkpoint, "l").json, R"(["..."])");
  EXPECT_EQ(ValueAt(checkpoint, "l").annotations,
            (std::vector<Annotation>{{"python_types", R"({"/0":"cycle"})"}}));
}

TEST(Torch, ReportsATensorThatReachesBeyondItsStorage) {
  EXPECT_EQ(ErrorOfBad({.offset = 1, .shape = {4}, .stride = {1}}),
            "view out of range: 4 bytes from element 1 on (data/0 has 4 bytes)");
}

TEST(Torch, ReportsANegativeSize) {
  EXPECT_THAT(
      [] { Read(OneTensor({.offset = 0, .shape = {-1}, .stride = {1}}), {"abcd"}); },
      ThrowsMessage<Error>(HasSubstr(
          "data.pkl: tensor 'w': its size has an invalid number (found -1, expected 0 to 2^63)")));
}

TEST(Torch, ReportsAShapeThatOverflows) {
  const int64_t big = int64_t{1} << 40;
  EXPECT_THAT(
      [&] {
        Read(OneTensor({.offset = 0, .shape = {big, big}, .stride = {0, 0}}), {"abcd"});
      },
      ThrowsMessage<Error>(HasSubstr("tensor 'w': its shape needs more than 2^63 bytes")));
}

TEST(Torch, RefusesToRepeatAFewBytesToAnExabyte) {
  const int64_t big = int64_t{1} << 60;
  EXPECT_THAT([&] { Read(OneTensor({.offset = 0, .shape = {big}, .stride = {0}}), {"abcd"}); },
              ThrowsMessage<Error>(HasSubstr("expands its 1 stored bytes to 1152921504606846976")));
}

TEST(Torch, ReportsAStorageShorterThanItsTensorsNeed) {
  EXPECT_THAT([] { Read(OneTensor({.offset = 0, .shape = {4}, .stride = {1}}), {"abc"}); },
              ThrowsMessage<Error>("memory: data.pkl: tensor 'w': data/0: too small for its "
                                   "storage (found 3 bytes, expected 4)"));
}

TEST(Torch, ReportsAMissingStorage) {
  EXPECT_THAT(
      [] { Read(OneTensor({.offset = 0, .shape = {4}, .stride = {1}})); },
      ThrowsMessage<Error>(
          "memory: data.pkl: tensor 'w': member 'archive/data/0' not found in the archive"));
}

TEST(Torch, ReadsThePersistentIdsOfProtocol0) {
  const Checkpoint checkpoint = Read(
      PickleWriter().Raw("P('storage', <class 'torch.ByteStorage'>, '0', 'cpu', 4)\n"), {"abcd"});
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "tensor").data), "abcd");
}

TEST(Torch, RefusesALaterTensorThatSeesItsStorageAsAnotherType) {
  const View view{.offset = 0, .shape = {1}, .stride = {1}};
  const Checkpoint checkpoint = Read(PickleWriter()
                                         .EmptyDict()
                                         .Text("a")
                                         .Tensor("Float", "0", 1, view)
                                         .SetItem()
                                         .Text("b")
                                         .Tensor("Int", "0", 1, view)
                                         .SetItem(),
                                     {"abcd"});
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "a").data), "abcd");
  EXPECT_EQ(MessageOf(ValueAt(checkpoint, "b").error),
            "its storage '0' is described in two ways (found 4 bytes of int32, expected 4 bytes of "
            "float32)");
}

TEST(Torch, ReportsAFailedSave) {
  const ByteSourcePtr source = ZipWriter().Add("archive/version", "3\n").Source();
  EXPECT_THAT([&] { ReadCheckpoint(source); },
              ThrowsMessage<Error>("memory: data.pkl not found: the torch.save that "
                                   "wrote the file failed"));
}

TEST(Torch, ReportsAZipThatIsNoCheckpoint) {
  const ByteSourcePtr source = ZipWriter().Add("readme.txt", "hello").Source();
  EXPECT_THAT([&] { ReadCheckpoint(source); },
              ThrowsMessage<Error>("memory: zip archive without a checkpoint "
                                   "in a supported format"));
}

TEST(Torch, RefusesAnUnknownByteOrder) {
  const ByteSourcePtr source = ZipWriter()
                                   .Add("archive/data.pkl", PickleWriter().None().Finish())
                                   .Add("archive/byteorder", "middle")
                                   .Source();
  EXPECT_THAT([&] { ReadCheckpoint(source); },
              ThrowsMessage<Error>(
                  "memory: invalid byteorder (found 'middle', expected 'little' or 'big')"));
}

TEST(Torch, RefusesTenThousandListsInOneAnother) {
  PickleWriter pickle;
  for (int i = 0; i < 10'000; ++i) pickle.EmptyList();
  for (int i = 1; i < 10'000; ++i) pickle.Append();
  EXPECT_THAT(
      [&] { Read(pickle); },
      ThrowsMessage<Error>("memory: data.pkl: objects are nested more than 1000 levels deep"));
}

TEST(Torch, RefusesAGraphWithTwoToTheSixtiethPaths) {
  PickleWriter pickle;
  pickle.EmptyDict().Text("x").Raw(")");
  for (int i = 0; i < 60; ++i) pickle.Raw("q\x01h\x01\x86");
  pickle.SetItem();
  EXPECT_THAT([&] { Read(pickle); },
              ThrowsMessage<Error>(HasSubstr("needs more than 32 MiB of memory")));
}

}  // namespace
}  // namespace ckptfs
