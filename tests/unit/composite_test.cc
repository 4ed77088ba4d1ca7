#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "parser/base/error.h"
#include "parser/detect.h"
#include "tests/support/pickle_writer.h"
#include "tests/support/sources.h"

namespace ckptfs {
namespace {

using testing::Contains;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Pair;
using testing::StartsWith;

// A dict of the tensor "t" that `push` makes and of one that is all right. The storages "0", "1"
// and "2" have 8 bytes each.
template <typename Push>
Checkpoint Read(const Push& push) {
  PickleWriter pickle;
  pickle.EmptyDict().Text("t");
  push(pickle);
  pickle.SetItem().Text("good");
  pickle.Tensor("Byte", "2", 8, {.offset = 0, .shape = {8}, .stride = {1}}).SetItem();
  const std::vector<std::string> storages = {"abcdefgh", "ijklmnop", "qrstuvwx"};
  return ReadCheckpoint(TorchArchive(pickle.Finish(), storages));
}

void PushLayout(PickleWriter& pickle, std::string_view layout) {
  pickle.Global("torch.serialization", "_get_layout").Mark().Text(layout).Tuple().Reduce();
}

void PushBytes(PickleWriter& pickle, std::string_view key) {
  pickle.Tensor("Byte", key, 8, {.offset = 0, .shape = {8}, .stride = {1}});
}

const Group& GroupAt(const Checkpoint& checkpoint, std::string_view path) {
  return *std::get<std::unique_ptr<Group>>(At(checkpoint.root, path).content);
}

// _rebuild_sparse_tensor(layout, (tensors 0, 1 and 2, size))
Checkpoint ReadSparse(std::string_view layout, int tensors, std::vector<int64_t> size) {
  return Read([&](PickleWriter& pickle) {
    pickle.Global("torch._utils", "_rebuild_sparse_tensor").Mark();
    PushLayout(pickle, layout);
    pickle.Mark();
    for (int i = 0; i < tensors; ++i) PushBytes(pickle, std::to_string(i));
    pickle.Ints(size).Tuple().Tuple().Reduce();
  });
}

std::string ErrorOf(const Checkpoint& checkpoint) {
  const Value& value = ValueAt(checkpoint, "t");
  EXPECT_EQ(value.python_type, "tensor");
  return std::string(MessageOf(value.error));
}

TEST(Composite, ShowsTheIndicesAndValuesOfASparseTensor) {
  const Checkpoint checkpoint = ReadSparse("torch.sparse_coo", 2, {4, 2});
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "t/indices").data), "abcdefgh");
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "t/values").data), "ijklmnop");
  EXPECT_EQ(GroupAt(checkpoint, "t").python_type, "torch.Tensor");
  EXPECT_EQ(GroupAt(checkpoint, "t").about,
            (std::vector<Annotation>{
                {"class", "\"torch.Tensor\""},
                {"layout", "\"torch.sparse_coo\""},
                {"shape", "[4,2]"},
                {"recipe", "\"torch.sparse_coo_tensor(indices, values, (4, 2))\""}}));
}

TEST(Composite, NamesTheIndicesOfCompressedRows) {
  const Checkpoint checkpoint = ReadSparse("torch.sparse_bsr", 3, {4});
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "t/crow_indices").data), "abcdefgh");
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "t/col_indices").data), "ijklmnop");
  EXPECT_THAT(GroupAt(checkpoint, "t").about,
              Contains(Pair("recipe",
                            "\"torch.sparse_bsr_tensor(crow_indices, col_indices, values, "
                            "(4,))\"")));
}

TEST(Composite, NamesTheIndicesOfCompressedColumns) {
  const Checkpoint checkpoint = ReadSparse("torch.sparse_csc", 3, {4, 2});
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "t/ccol_indices").data), "abcdefgh");
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "t/row_indices").data), "ijklmnop");
}

TEST(Composite, ReportsASparseTensorWithoutAPart) {
  EXPECT_EQ(ErrorOf(ReadSparse("torch.sparse_csr", 2, {4, 2})),
            "too few arguments of the constructor (found 3, expected 4)");
}

TEST(Composite, ReportsAnUnsupportedLayout) {
  EXPECT_EQ(ErrorOf(ReadSparse("torch.sparse_xyz", 3, {4, 2})),
            "unsupported layout 'torch.sparse_xyz'");
}

TEST(Composite, ReportsANegativeSize) {
  EXPECT_EQ(ErrorOf(ReadSparse("torch.sparse_coo", 2, {-4, 2})),
            "its size has an invalid number (found -4, expected 0 to 2^63)");
}

TEST(Composite, DamageOfAPartCostsThatPart) {
  const Checkpoint checkpoint = Read([](PickleWriter& pickle) {
    pickle.Global("torch._utils", "_rebuild_sparse_tensor").Mark();
    PushLayout(pickle, "torch.sparse_coo");
    pickle.Mark();
    PushBytes(pickle, "0");
    PushBytes(pickle, "9");
    pickle.Ints(std::vector<int64_t>{4}).Tuple().Tuple().Reduce();
  });
  EXPECT_EQ(MessageOf(TensorAt(checkpoint, "t/indices").error), "");
  EXPECT_EQ(MessageOf(TensorAt(checkpoint, "t/values").error),
            "member 'archive/data/9' not found in the archive");
}

// _rebuild_qtensor of storage 0 with the quantizer that `push` writes.
template <typename Push>
Checkpoint ReadQuantized(std::string_view type, const Push& push) {
  return Read([&](PickleWriter& pickle) {
    const std::vector<int64_t> shape = {2, 4};
    const std::vector<int64_t> stride = {4, 1};
    pickle.Global("torch._utils", "_rebuild_qtensor").Mark().Storage(type, "0", 8).Int(0);
    pickle.Ints(shape).Ints(stride);
    push(pickle);
    pickle.Bool(false).EmptyDict().Tuple().Reduce();
  });
}

TEST(Composite, ShowsTheIntegersOfATensorThatIsQuantizedPerChannel) {
  const Checkpoint checkpoint = ReadQuantized("QInt8", [](PickleWriter& pickle) {
    pickle.Mark().Global("torch", "per_channel_affine");
    PushBytes(pickle, "1");
    PushBytes(pickle, "2");
    pickle.Int(1).Tuple();
  });
  const Tensor& integers = TensorAt(checkpoint, "t/int_repr");
  EXPECT_EQ(integers.dtype, Dtype::kInt8);
  EXPECT_EQ(integers.shape, (std::vector<uint64_t>{2, 4}));
  EXPECT_EQ(ReadString(integers.data), "abcdefgh");
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "t/zero_points").data), "qrstuvwx");
  EXPECT_THAT(GroupAt(checkpoint, "t").about, Contains(Pair("axis", "1")));
}

TEST(Composite, HasARecipeThatQuantizesAWholeTensor) {
  const Checkpoint checkpoint = ReadQuantized("QUInt8", [](PickleWriter& pickle) {
    pickle.Mark().Global("torch", "per_tensor_affine").Float(0.5).Int(3).Tuple();
  });
  EXPECT_THAT(TensorAt(checkpoint, "t").annotations,
              Contains(Pair("recipe",
                            "\"torch._make_per_tensor_quantized_tensor(tensor.view("
                            "torch.uint8).reshape((2, 4)), 0.5, 3)\"")));
}

TEST(Composite, ReportsAnInvalidQuantizer) {
  EXPECT_EQ(ErrorOf(ReadQuantized("QInt8", [](PickleWriter& pickle) { pickle.Text("no"); })),
            "its quantizer 'no' is not a tuple of 4");
}

TEST(Composite, ReportsAnInvalidAxis) {
  EXPECT_EQ(ErrorOf(ReadQuantized("QInt8",
                                  [](PickleWriter& pickle) {
                                    pickle.Mark().Global("torch", "per_channel_affine").None();
                                    pickle.None().Text("x").Tuple();
                                  })),
            "invalid axis 'x'");
}

// _rebuild_from_type_v2(_rebuild_wrapper_subclass, class, ..., state that `push` makes).
template <typename Push>
Checkpoint ReadWrapper(std::string_view module, std::string_view name, const Push& push) {
  return Read([&](PickleWriter& pickle) {
    const std::vector<int64_t> shape = {8};
    const std::vector<int64_t> stride = {1};
    pickle.Global("torch._tensor", "_rebuild_from_type_v2").Mark();
    pickle.Global("torch._utils", "_rebuild_wrapper_subclass").Global(module, name).Mark();
    pickle.Global(module, name).Global("torch", "uint8").Ints(shape).Ints(stride).Tuple();
    push(pickle);
    pickle.Tuple().Reduce();
  });
}

TEST(Composite, ShowsTheAttributesOfAWrapper) {
  const Checkpoint checkpoint = ReadWrapper("m", "W", [](PickleWriter& pickle) {
    pickle.EmptyDict().Text("scale").Int(3).SetItem().Text("inner");
    PushBytes(pickle, "0");
    pickle.SetItem();
  });
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "t/inner").data), "abcdefgh");
  EXPECT_EQ(GroupAt(checkpoint, "t").python_type, "m.W");
  EXPECT_THAT(GroupAt(checkpoint, "t").about, Contains(Pair("attributes", R"({"scale":3})")));
}

TEST(Composite, AWrapperOfNothingIsAValue) {
  const Checkpoint checkpoint = ReadWrapper("m", "W", [](PickleWriter& pickle) { pickle.None(); });
  EXPECT_THAT(ValueAt(checkpoint, "t").json, HasSubstr(R"("class":"m.W")"));
}

std::string RecipeOf(const Checkpoint& checkpoint) {
  for (const auto& [name, json] : GroupAt(checkpoint, "t").about) {
    if (name == "recipe") return json;
  }
  return "";
}

// The part of the recipe of a wrapper with the attributes that `push` adds.
template <typename Push>
std::string LiteralsOf(const Push& push) {
  std::string recipe = RecipeOf(ReadWrapper("m", "W", [&](PickleWriter& pickle) {
    pickle.EmptyDict().Text("inner");
    PushBytes(pickle, "0");
    pickle.SetItem();
    push(pickle);
  }));
  constexpr std::string_view kBefore =
      "\"torch._utils._set_obj_state(torch._utils._rebuild_wrapper_subclass(cls, torch.uint8, "
      "(8,), (1,), 0, torch.strided, 'cpu', False), parts | attributes";
  EXPECT_THAT(recipe, StartsWith(kBefore));
  EXPECT_THAT(recipe, EndsWith(")\""));
  if (recipe.size() < kBefore.size() + 2) return recipe;
  return recipe.substr(kBefore.size(), recipe.size() - kBefore.size() - 2);
}

TEST(Composite, ARecipeHasOnlyTheTypesThatJsonLacks) {
  EXPECT_EQ(LiteralsOf([](PickleWriter& pickle) {
              pickle.Text("a").Int(1).SetItem().Text("b").Text("')or evil(").SetItem();
              pickle.Text("c").EmptyDict().Text("d").None().SetItem().SetItem();
            }),
            "");
}

TEST(Composite, ARecipeSpellsDtypesAndTuples) {
  EXPECT_EQ(LiteralsOf([](PickleWriter& pickle) {
              pickle.Text("dtype").Global("torch", "int4").SetItem();
              pickle.Text("block").Mark().Int(1).Float(2).Tuple().SetItem();
              pickle.Text("one").Mark().Text("x").Tuple().SetItem();
            }),
            " | {'dtype': torch.int4, 'block': (1, 2.0), 'one': ('x',)}");
}

TEST(Composite, ARecipeSpellsSizesAndDevices) {
  EXPECT_EQ(LiteralsOf([](PickleWriter& pickle) {
              pickle.Text("size").Global("torch", "Size").Mark().Mark().Int(2).Tuple().Tuple();
              pickle.Reduce().SetItem();
              pickle.Text("device").Global("torch", "device").Mark().Text("cuda").Int(1).Tuple();
              pickle.Reduce().SetItem();
            }),
            " | {'size': torch.Size([2]), 'device': torch.device('cuda', 1)}");
}

TEST(Composite, ARecipeSpellsFloatsThatAreNotFinite) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(LiteralsOf([](PickleWriter& pickle) {
              pickle.Text("x").Float(kInfinity).SetItem().Text("y").Float(-kInfinity).SetItem();
            }),
            " | {'x': 1e999, 'y': -1e999}");
}

TEST(Composite, ARecipeFindsTensorsInTuples) {
  EXPECT_EQ(LiteralsOf([](PickleWriter& pickle) {
              pickle.Text("pair").Mark().None();
              PushBytes(pickle, "1");
              pickle.Tuple().SetItem();
            }),
            " | {'pair': (None, parts['pair']['1'])}");
}

TEST(Composite, ARecipeSpellsNoObjects) {
  EXPECT_EQ(LiteralsOf([](PickleWriter& pickle) {
              pickle.Text("kind").Mark().Global("m", "Kind").Mark().Int(1).Tuple().Reduce();
              pickle.Tuple().SetItem();
            }),
            "");
}

TEST(Composite, ARecipeEscapesTexts) {
  EXPECT_EQ(LiteralsOf([](PickleWriter& pickle) {
              pickle.Text("')|evil(").Mark().Text("a'\n\\").Tuple().SetItem();
            }),
            R"( | {'\\U00000027\\U00000029\\U0000007cevil\\U00000028': )"
            R"(('a\\U00000027\\U0000000a\\U0000005c',)})");
}

TEST(Composite, ARecipeHasNoNamesThatAreNotOfTorch) {
  EXPECT_EQ(LiteralsOf([](PickleWriter& pickle) {
              pickle.Text("a").Global("torch", "int8)or(evil").SetItem();
              pickle.Text("b").Global("evil", "int8").SetItem();
              pickle.Text("c").Global("torch", "device").Mark().Text("cpu')or('").Tuple().Reduce();
              pickle.SetItem().Text("d").Mark();
              PushLayout(pickle, "torch.strided)or(evil");
              pickle.Tuple().SetItem();
            }),
            "");
}

TEST(Composite, ALongValueIsLeftToJson) {
  EXPECT_EQ(LiteralsOf([](PickleWriter& pickle) {
              pickle.Text("x").Ints(std::vector<int64_t>(20'000, 7)).SetItem();
            }),
            "");
}

// Pushes a DTensor's state: its local tensor is storage 0, its mesh as old PyTorch had it.
void PushDTensorState(PickleWriter& pickle, std::string_view placement,
                      std::string_view ranks_type = "Int", int64_t ranks = 2) {
  const std::vector<int64_t> shape = {ranks};
  pickle.EmptyDict().Text("_local_tensor");
  PushBytes(pickle, "0");
  pickle.SetItem().Text("_spec").Global("m", "DTensorSpec").Raw(")\x81").EmptyDict();
  pickle.Text("mesh").Global("m", "DeviceMesh").Raw(")\x81").EmptyDict().Text("mesh");
  pickle.Tensor(ranks_type, "1", ranks, {.offset = 0, .shape = shape, .stride = {1}});
  pickle.SetItem().Build().SetItem();
  pickle.Text("placements").Mark().Global("m", placement).Raw(")\x81").EmptyDict();
  pickle.Text("dim").Int(0).SetItem().Build().Tuple().SetItem();
  pickle.Build().SetItem();
}

constexpr std::string_view kDTensorModule = "torch.distributed.tensor";

TEST(Composite, RecordsMeshAndPlacementOfADistributedTensor) {
  const Checkpoint checkpoint = ReadWrapper(
      kDTensorModule, "DTensor", [](PickleWriter& pickle) { PushDTensorState(pickle, "Shard"); });
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "t/_local_tensor").data), "abcdefgh");
  EXPECT_THAT(GroupAt(checkpoint, "t").about,
              Contains(Pair("mesh", "[1818978921, 1886350957]")));  // "ijkl", "mnop"
  EXPECT_THAT(GroupAt(checkpoint, "t").about,
              Contains(Pair("placements", R"x(["Shard(dim=0)"])x")));
}

TEST(Composite, GivesNoRecipeForAPlacementThatItDoesNotKnow) {
  const Checkpoint checkpoint = ReadWrapper(kDTensorModule, "DTensor", [](PickleWriter& pickle) {
    PushDTensorState(pickle, "Scattered");
  });
  EXPECT_THAT(GroupAt(checkpoint, "t").about,
              Contains(Pair("placements", R"x(["<m.Scattered>"])x")));
  EXPECT_THAT(GroupAt(checkpoint, "t").about, testing::Not(Contains(Pair("recipe", testing::_))));
}

TEST(Composite, ReportsAMeshWithoutIntegers) {
  const Checkpoint checkpoint = ReadWrapper(kDTensorModule, "DTensor", [](PickleWriter& pickle) {
    PushDTensorState(pickle, "Shard", "Float");
  });
  EXPECT_EQ(ErrorOf(checkpoint), "its mesh is 8 bytes of float32");
}

TEST(Composite, ReportsAnUnreadableMesh) {
  const Checkpoint checkpoint = ReadWrapper(kDTensorModule, "DTensor", [](PickleWriter& pickle) {
    PushDTensorState(pickle, "Shard", "Int", 1000);
  });
  EXPECT_EQ(ErrorOf(checkpoint),
            "data/1: too small for its storage (found 8 bytes, expected 4000)");
}

TEST(Composite, ReportsADistributedTensorWithoutALocalPart) {
  const Checkpoint checkpoint =
      ReadWrapper(kDTensorModule, "DTensor", [](PickleWriter& pickle) { pickle.EmptyDict(); });
  EXPECT_EQ(ErrorOf(checkpoint), "DTensor: missing local tensor");
}

TEST(Composite, ReportsAShardedTensorWithoutShards) {
  const Checkpoint checkpoint =
      ReadWrapper("torch.distributed._shard.sharded_tensor.api", "ShardedTensor",
                  [](PickleWriter& pickle) { pickle.EmptyDict(); });
  EXPECT_EQ(ErrorOf(checkpoint), "ShardedTensor: missing shards");
}

TEST(Composite, AMetaTensorIsAValueWithItsRecipe) {
  const Checkpoint checkpoint = Read([](PickleWriter& pickle) {
    const std::vector<int64_t> shape = {2, 3};
    const std::vector<int64_t> stride = {3, 1};
    pickle.Global("torch._utils", "_rebuild_meta_tensor_no_storage").Mark();
    pickle.Global("torch", "float32").Ints(shape).Ints(stride).Bool(false).Tuple().Reduce();
  });
  EXPECT_EQ(ValueAt(checkpoint, "t").json,
            R"x({"class":"torch.Tensor","device":"meta","dtype":"torch.float32","shape":[2,3],)x"
            R"x("requires_grad":false})x");
  EXPECT_THAT(ValueAt(checkpoint, "t").annotations,
              Contains(Pair("recipe", R"x("torch.empty_strided((2, 3), (3, 1), )x"
                                      R"x(dtype=torch.float32, device='meta')")x")));
}

}  // namespace
}  // namespace ckptfs
