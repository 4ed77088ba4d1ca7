#include "parser/view/view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/checkpoint.h"
#include "parser/detect.h"
#include "parser/io/simple_sources.h"
#include "tests/support/sources.h"

namespace ckptfs {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Tensor TensorOf(Dtype dtype, std::vector<uint64_t> shape, const ByteSourcePtr& source,
                uint64_t offset = 0) {
  Tensor tensor;
  tensor.dtype = dtype;
  tensor.data = {source, offset, ByteSize(dtype, shape)};
  tensor.shape = std::move(shape);
  return tensor;
}

ByteSourcePtr Bytes(std::string bytes) { return std::make_shared<MemorySource>(std::move(bytes)); }

Value TextOf(std::string text) {
  Value value;
  value.json = std::move(text);
  return value;
}

void Add(Checkpoint& checkpoint, std::string key, Content content) {
  checkpoint.root.members.push_back(
      {.key = {.text = std::move(key)}, .content = std::move(content)});
}

struct Shown {
  json header;
  std::string data;
  std::vector<std::string> left_out;
};

Shown ViewOf(const Checkpoint& checkpoint) {
  Budget budget;
  const SafetensorsView view = MakeSafetensorsView(checkpoint, budget);
  const std::string all = ReadString({view.file, 0, view.file->size()});
  const auto size = static_cast<unsigned char>(all[0]) | static_cast<unsigned char>(all[1]) << 8U;
  EXPECT_EQ(size % 8, 0);
  EXPECT_NO_THROW(ReadCheckpoint(view.file));  // By the rules of the reference.
  const auto length = static_cast<size_t>(size);
  return {json::parse(all.substr(8, length)), all.substr(8 + length), view.left_out};
}

TEST(SafetensorsView, HasTheTensorsInTheOrderOfTheirSource) {
  const ByteSourcePtr source = Bytes("aaaabbbb");
  Checkpoint checkpoint;
  Add(checkpoint, "b", TensorOf(Dtype::kUint8, {2, 2}, source, 4));
  Add(checkpoint, "a", TensorOf(Dtype::kUint8, {4}, source));
  const Shown shown = ViewOf(checkpoint);
  EXPECT_EQ(shown.data, "aaaabbbb");
  EXPECT_EQ(shown.header["a"], (json{{"dtype", "U8"}, {"shape", {4}}, {"data_offsets", {0, 4}}}));
  EXPECT_EQ(shown.header["b"],
            (json{{"dtype", "U8"}, {"shape", {2, 2}}, {"data_offsets", {4, 8}}}));
  EXPECT_EQ(shown.header["__metadata__"], (json{{"format", "pt"}}));
}

TEST(SafetensorsView, AlignsEachTensor) {
  const ByteSourcePtr source = Bytes("12345678abcdx");
  Checkpoint checkpoint;
  Add(checkpoint, "byte", TensorOf(Dtype::kBool, {1}, source, 12));
  Add(checkpoint, "float", TensorOf(Dtype::kFloat32, {}, source, 8));
  Add(checkpoint, "long", TensorOf(Dtype::kInt64, {1}, source));
  const Shown shown = ViewOf(checkpoint);
  EXPECT_EQ(shown.data, "12345678abcdx");
  EXPECT_EQ(shown.header["float"]["shape"], json::array());
}

TEST(SafetensorsView, HasTiedTensorsUnderEachKey) {
  const ByteSourcePtr source = Bytes("aaaa");
  Checkpoint checkpoint;
  Add(checkpoint, "one", TensorOf(Dtype::kUint8, {4}, source));
  Add(checkpoint, "two", TensorOf(Dtype::kUint8, {4}, source));
  EXPECT_EQ(ViewOf(checkpoint).data, "aaaaaaaa");
}

TEST(SafetensorsView, JoinsKeysByDots) {
  auto inner = std::make_unique<Group>();
  inner->members.push_back(
      {.key = {.text = "w"}, .content = TensorOf(Dtype::kUint8, {1}, Bytes("x"))});
  inner->members.push_back({.key = {.text = "name"}, .content = TextOf(R"("é \ud83d\ude00")")});
  Checkpoint checkpoint;
  Add(checkpoint, "model.h", std::move(inner));
  const Shown shown = ViewOf(checkpoint);
  EXPECT_TRUE(shown.header.contains("model.h.w"));
  EXPECT_EQ(shown.header["__metadata__"]["model.h.name"], "é 😀");
}

TEST(SafetensorsView, HasMetadataOfStringsOnly) {
  Checkpoint checkpoint;
  Add(checkpoint, "step", TextOf("7"));
  Add(checkpoint, "list", TextOf(R"(["a"])"));
  Add(checkpoint, "half", TextOf(R"("\ud83d")"));
  Add(checkpoint, "other half", TextOf(R"("x\ude00")"));
  Add(checkpoint, "backslash", TextOf(R"("\\ud83d")"));
  Add(checkpoint, "format", TextOf(R"("tf")"));
  EXPECT_EQ(ViewOf(checkpoint).header["__metadata__"],
            (json{{"format", "pt"}, {"backslash", "\\ud83d"}}));
}

TEST(SafetensorsView, LeavesOutWhatItCannotHave) {
  const ByteSourcePtr source = Bytes("0123456789abcdef");
  Checkpoint checkpoint;
  Add(checkpoint, "complex", TensorOf(Dtype::kComplex128, {1}, source));
  Add(checkpoint, "\xff", TensorOf(Dtype::kUint8, {1}, source));
  Add(checkpoint, "__metadata__", TensorOf(Dtype::kUint8, {1}, source));
  Add(checkpoint, "twice", TensorOf(Dtype::kUint8, {1}, source));
  Add(checkpoint, "twice", TensorOf(Dtype::kUint8, {1}, source, 1));
  auto composite = std::make_unique<Group>();
  composite->about.emplace_back("recipe", "\"x\"");
  composite->members.push_back(
      {.key = {.text = "part"}, .content = TensorOf(Dtype::kUint8, {1}, source)});
  Add(checkpoint, "composite", std::move(composite));
  const Shown shown = ViewOf(checkpoint);
  EXPECT_THAT(shown.left_out, ElementsAre("complex", "\xff", "__metadata__", "twice", "composite"));
  EXPECT_EQ(shown.data, "0");
}

TEST(SafetensorsView, FailsWhereATensorFails) {
  Checkpoint checkpoint;
  Tensor broken = TensorOf(Dtype::kUint8, {4}, Bytes("aaaa"));
  broken.error = Error(EIO, "checksum mismatch");
  Add(checkpoint, "broken", std::move(broken));
  Add(checkpoint, "good", TensorOf(Dtype::kUint8, {4}, Bytes("bbbb")));
  Budget budget;
  const SafetensorsView view = MakeSafetensorsView(checkpoint, budget);
  const uint64_t size = view.file->size();
  EXPECT_EQ(ReadString({view.file, size - 4, 4}), "bbbb");
  EXPECT_THROW(ReadString({view.file, size - 5, 4}), Error);
  EXPECT_NO_THROW(ReadString({view.file, 0, size - 8}));
}

TEST(SafetensorsView, ChargesForItsHeader) {
  Checkpoint checkpoint;
  for (int i = 0; i < 100; ++i) {
    Add(checkpoint, std::string(1000, 'k') + std::to_string(i),
        TensorOf(Dtype::kUint8, {0}, Bytes("")));
  }
  Budget budget(50'000);
  EXPECT_THROW(MakeSafetensorsView(checkpoint, budget), Error);
}

TEST(SafetensorsView, OmitsTensorsWhoseOffsetsWouldOverflow) {
  const auto zeros = std::make_shared<Zeros>(uint64_t{1} << 60U);
  Checkpoint checkpoint;
  for (const char* key : {"a", "b", "c", "d", "e"}) {
    Add(checkpoint, key, TensorOf(Dtype::kUint8, {zeros->size()}, zeros));
  }
  Budget budget;
  const SafetensorsView view = MakeSafetensorsView(checkpoint, budget);
  EXPECT_THAT(view.left_out, ElementsAre("e"));
}

TEST(SafetensorsView, LeavesOutWhatTheReferenceCannotCount) {
  constexpr uint64_t kHuge = uint64_t{1} << 40U;
  const auto zeros = std::make_shared<Zeros>(uint64_t{1} << 61U);
  Checkpoint checkpoint;
  Add(checkpoint, "empty", TensorOf(Dtype::kUint8, {kHuge, kHuge, 0}, Bytes("")));
  Add(checkpoint, "huge", TensorOf(Dtype::kUint8, {zeros->size()}, zeros));
  Budget budget;
  EXPECT_THAT(MakeSafetensorsView(checkpoint, budget).left_out, ElementsAre("empty", "huge"));
}

TEST(SafetensorsView, LeavesOutASinglePairOfFloat4) {
  const ByteSourcePtr source = Bytes("ab");
  Checkpoint checkpoint;
  Add(checkpoint, "pair", TensorOf(Dtype::kFloat4E2m1fnX2, {}, source));
  Add(checkpoint, "pairs", TensorOf(Dtype::kFloat4E2m1fnX2, {2}, source));
  const Shown shown = ViewOf(checkpoint);
  EXPECT_THAT(shown.left_out, ElementsAre("pair"));
  EXPECT_EQ(shown.header["pairs"]["shape"], json({4}));
}

TEST(NpyView, HasAHeader) {
  const auto view = MakeNpyView(TensorOf(Dtype::kFloat32, {1}, Bytes("abcd")));
  const std::string all = ReadString({view, 0, view->size()});
  EXPECT_EQ(all.size() % 64, 4U);
  EXPECT_THAT(all, HasSubstr("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }"));
  EXPECT_TRUE(all.ends_with("\nabcd"));
  EXPECT_EQ(ReadCheckpoint(view).format, "npy");
  EXPECT_EQ(MakeNpyView(TensorOf(Dtype::kBfloat16, {1}, Bytes("ab"))), nullptr);
}

Checkpoint Nested() {
  auto model = std::make_unique<Group>();
  model->members.push_back({.key = {.text = "w"}, .content = TextOf("1")});
  Checkpoint checkpoint;
  Add(checkpoint, "model", std::move(model));
  Add(checkpoint, "net.0.w", TextOf("2"));
  Add(checkpoint, "net.1.w", TextOf("3"));
  return checkpoint;
}

std::vector<std::string> KeysOf(const Checkpoint& checkpoint) {
  std::vector<std::string> keys;
  for (const Member& member : checkpoint.root.members) keys.push_back(member.key.text);
  return keys;
}

TEST(Subtree, IsADictOrAPrefixOfDottedKeys) {
  Checkpoint checkpoint = Nested();
  TakeSubtree(checkpoint, "/model/");
  EXPECT_THAT(KeysOf(checkpoint), ElementsAre("w"));
  checkpoint = Nested();
  TakeSubtree(checkpoint, "net");
  EXPECT_THAT(KeysOf(checkpoint), ElementsAre("0.w", "1.w"));
  TakeSubtree(checkpoint, "1");
  EXPECT_THAT(KeysOf(checkpoint), ElementsAre("w"));
}

TEST(Subtree, NamesTheKeysThereAre) {
  Checkpoint checkpoint = Nested();
  try {
    TakeSubtree(checkpoint, "modle");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ENOENT);
    EXPECT_STREQ(e.what(), "subtree 'modle': no dict of that key, but 'model', 'net'");
  }
}

}  // namespace
}  // namespace ckptfs
