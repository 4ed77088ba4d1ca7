#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
#include "parser/io/simple_sources.h"
#include "tests/support/memory_folder.h"
#include "tests/support/pickle_writer.h"
#include "tests/support/reading.h"
#include "tests/support/sources.h"
#include "tests/support/zip_writer.h"

namespace ckptfs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

const std::string kEnd =
    R"("shape":[],"device":"cpu","_type":"<class 'tensordict._td.TensorDict'>"})";
const std::string kBytes = R"({"device":"cpu","shape":[2],"dtype":"torch.uint8"})";

// The meta.json of a TensorDict with these entries.
std::string Meta(const std::string& entries) {
  return "{" + entries + (entries.empty() ? "" : ",") + kEnd;
}

std::string Value(const std::string& members) {
  return R"({"_type":"<class 'tensordict.tensorclass.NonTensorData'>")" + members + "}";
}

const Content& ContentAt(const Group& group, std::string_view key) {
  for (const Member& member : group.members) {
    if (member.key.text == key) return member.content;
  }
  throw std::runtime_error("no member " + std::string(key));
}

template <typename T>
const T& At(const Group& group, std::string_view key) {
  return std::get<T>(ContentAt(group, key));
}

const Group& GroupAt(const Group& group, std::string_view key) {
  return *At<std::unique_ptr<Group>>(group, key);
}

std::string Text(const Tensor& tensor) { return ReadString(tensor.data); }

// A tensor `t` that is `entry`, with these files beside meta.json, and a sound tensor `sound`.
Checkpoint OneTensor(const std::string& entry, Files files = {{"t.memmap", "01"}}) {
  files["meta.json"] = Meta("\"t\":" + entry + ",\"sound\":" + kBytes);
  files["sound.memmap"] = "01";
  return Read(std::move(files));
}

TEST(TensorDict, HasTensorsInFilesOfTheirNames) {
  const Checkpoint checkpoint = OneTensor(kBytes);
  EXPECT_EQ(checkpoint.format, "tensordict");
  EXPECT_THAT(checkpoint.warnings, IsEmpty());
  const auto& tensor = At<Tensor>(checkpoint.root, "t");
  EXPECT_EQ(Text(tensor), "01");
  EXPECT_EQ(tensor.member, "t.memmap");
  EXPECT_EQ(checkpoint.root.collection.text, "");
}

TEST(TensorDict, MayBeNamedByItsMetaJson) {
  const Files files = {{"meta.json", Meta("\"t\":" + kBytes)}, {"t.memmap", "01"}};
  EXPECT_EQ(Text(At<Tensor>(ReadCheckpoint(FileOf(files, "meta.json")).root, "t")), "01");
}

TEST(TensorDict, IsNoDirectoryWithAnotherMetaJson) {
  EXPECT_EQ(ErrorOf({{"meta.json", R"({"_type":"mine","license":"MIT"})"}}),
            "folder: directory without a checkpoint in a supported format, but with 'meta.json'");
}

TEST(TensorDict, BeforeVersion3IsNotSupported) {
  EXPECT_EQ(
      ErrorOf({{"meta.pt", ""}, {"a.meta.pt", ""}, {"a.memmap", ""}}),
      "folder: is a TensorDict of tensordict before 0.3, which is not supported: load it with "
      "that version, and save its to_dict() with torch.save");
}

TEST(TensorDict, KeepsDotsInKeys) {
  const Checkpoint checkpoint =
      Read({{"meta.json", Meta("\"a.b\":" + kBytes)}, {"a.b.memmap", "01"}});
  EXPECT_EQ(checkpoint.root.members.front().key.kind, Key::Kind::kWhole);
}

TEST(TensorDict, FindsFilesByEncodedNamesAndByRawOnes) {
  EXPECT_EQ(
      Text(At<Tensor>(Read({{"meta.json", Meta("\"a b\":" + kBytes)}, {"a%20b.memmap", "01"}}).root,
                      "a b")),
      "01");
  EXPECT_EQ(
      Text(At<Tensor>(Read({{"meta.json", Meta("\"a b\":" + kBytes)}, {"a b.memmap", "23"}}).root,
                      "a b")),
      "23");
}

TEST(TensorDict, FindsKeysWithSlashesInDirectoriesAsOldVersionsLeftThem) {
  const Checkpoint checkpoint =
      Read({{"meta.json", Meta("\"a/b\":" + kBytes)}, {"a/b.memmap", "01"}});
  EXPECT_EQ(Text(At<Tensor>(checkpoint.root, "a/b")), "01");
}

TEST(TensorDict, LooksForNothingOutside) {
  const Checkpoint checkpoint = Read({{"meta.json", Meta("\"t\":" + kBytes + R"(,"../t":)" +
                                                         kBytes + R"(,"a/../../t":)" + kBytes)},
                                      {"a/x", ""},
                                      {"t.memmap", "01"}});
  EXPECT_EQ(MessageOf(At<Tensor>(checkpoint.root, "../t").error), "no such file: '..%2Ft.memmap'");
  EXPECT_EQ(MessageOf(At<Tensor>(checkpoint.root, "a/../../t").error),
            "no such file: 'a%2F..%2F..%2Ft.memmap'");
}

TEST(TensorDict, NeedsNoFileForATensorWithoutElements) {
  const Checkpoint checkpoint = OneTensor(R"({"shape":[0,3],"dtype":"torch.float32"})", {});
  EXPECT_EQ(At<Tensor>(checkpoint.root, "t").data.length, 0U);
  EXPECT_THAT(checkpoint.warnings, IsEmpty());
}

TEST(TensorDict, ReportsATensorWithoutAFile) {
  const Checkpoint checkpoint = OneTensor(kBytes, {});
  EXPECT_THAT(checkpoint.warnings,
              ElementsAre("tensor 't': no such file: 't.memmap': reading it will fail"));
  EXPECT_EQ(At<Tensor>(checkpoint.root, "t").data.length, 2U);
}

TEST(TensorDict, OfWhichNoTensorCanBeReadIsRefused) {
  EXPECT_EQ(ErrorOf({{"meta.json", Meta("\"t\":" + kBytes)}}),
            "folder: meta.json: tensor 't': no such file: 't.memmap'");
}

TEST(TensorDict, ReportsATruncatedFile) {
  const Checkpoint checkpoint = OneTensor(kBytes, {{"t.memmap", "0"}, {"u.memmap", "01"}});
  EXPECT_EQ(MessageOf(At<Tensor>(checkpoint.root, "t").error),
            "its file: size mismatch (found 1 bytes, dtype and shape need 2)");
}

TEST(TensorDict, TakesTheFirstBytesOfAFileThatIsTooLong) {
  const Checkpoint checkpoint = OneTensor(kBytes, {{"t.memmap", "0123"}});
  const auto& tensor = At<Tensor>(checkpoint.root, "t");
  EXPECT_EQ(Text(tensor), "01");
  EXPECT_THAT(tensor.annotations, ElementsAre(Pair("file_bytes", "4")));
}

TEST(TensorDict, ReportsAnInvalidShape) {
  EXPECT_THAT(OneTensor(R"({"shape":[-1],"dtype":"torch.uint8"})").warnings,
              ElementsAre("tensor 't': its shape has an item that is not a number from 0 to "
                          "2^63: reading it will fail"));
  EXPECT_THAT(
      OneTensor(R"({"shape":[4611686018427387904,4],"dtype":"torch.int8"})").warnings,
      ElementsAre("tensor 't': its shape needs more than 2^63 bytes: reading it will fail"));
}

TEST(TensorDict, ShowsAnUnknownTypeAsBytes) {
  const Checkpoint checkpoint = OneTensor(R"({"shape":[2],"dtype":"torch.int4"})");
  const auto& tensor = At<Tensor>(checkpoint.root, "t");
  EXPECT_EQ(tensor.foreign_dtype, "torch.int4");
  EXPECT_EQ(Text(tensor), "01");
  EXPECT_THAT(tensor.annotations,
              ElementsAre(Pair("stored_dtype", "\"torch.int4\""), Pair("stored_shape", "[2]")));
}

TEST(TensorDict, ReadsFloat8WhichItsOwnLoaderRefuses) {
  const Checkpoint checkpoint = OneTensor(R"({"shape":[2],"dtype":"torch.float8_e4m3fn"})");
  EXPECT_EQ(At<Tensor>(checkpoint.root, "t").dtype, Dtype::kFloat8E4m3fn);
}

TEST(TensorDict, IgnoresWhatItsLoaderIgnores) {
  const Checkpoint checkpoint =
      Read({{"meta.json",
             Meta(R"("a":1,"b":"x","c":[],"d":{"shape":[]},"e":{"dtype":"x","type":null})")}});
  EXPECT_THAT(checkpoint.root.members, IsEmpty());
  EXPECT_THAT(checkpoint.warnings, IsEmpty());
}

TEST(TensorDict, KeepsItsBatchSizeItsNamesAndThatItHasNoDevice) {
  const Checkpoint checkpoint = Read({{"meta.json", R"({"shape":[2,3],"device":"None",
      "_names":["a",null],"_type":"<class 'tensordict._td.TensorDict'>"})"}});
  EXPECT_EQ(checkpoint.root.collection.Json(),
            R"("shape":[2,3],"_names":["a",null],"device":"None",)"
            R"("_type":"<class 'tensordict._td.TensorDict'>")");
}

TEST(TensorDict, IsOnTheCpuWhereverItWas) {
  const Checkpoint checkpoint = Read({{"meta.json", R"({"shape":[],"device":"cuda:0",
      "_type":"<class 'tensordict._td.TensorDict'>"})"}});
  EXPECT_EQ(checkpoint.root.collection.text, "");
  EXPECT_THAT(checkpoint.root.annotations, ElementsAre(Pair("saved_device", "\"cuda:0\"")));
}

TEST(TensorDict, HasNoNamesThatItsLoaderWouldRefuse) {
  const auto text_of = [](const std::string& names) {
    return Read({{"meta.json", R"({"shape":[2,3],"device":"cpu","_names":)" + names +
                                   R"(,"_type":"<class 'tensordict._td.TensorDict'>"})"}})
        .root.collection.Json();
  };
  const auto* const without =
      R"("shape":[2,3],"device":"cpu","_type":"<class 'tensordict._td.TensorDict'>")";
  EXPECT_EQ(text_of(R"(["a"])"), without);
  EXPECT_EQ(text_of(R"(["a","a"])"), without);
  EXPECT_EQ(text_of(R"(["a",1])"), without);
  EXPECT_EQ(text_of("[null,null]"), without);
}

TEST(TensorDict, RefusesABatchSizeThatIsNone) {
  EXPECT_EQ(
      ErrorOf({{"meta.json", R"({"shape":{},"_type":"<class 'tensordict._td.TensorDict'>"})"}}),
      "folder: meta.json: batch size: not a list");
}

TEST(TensorDict, RefusesALaterVersionOfTheLayout) {
  EXPECT_EQ(ErrorOf({{"meta.json",
                      R"({"_format_version":2,"_type":"<class 'tensordict._td.TensorDict'>"})"}}),
            "folder: meta.json: unsupported version 2 of the layout (maximum 1)");
}

TEST(TensorDict, RefusesAMetaJsonThatIsNone) {
  EXPECT_EQ(ErrorOf({{"meta.json", R"({"_type":"<class 'x'>")"}}),
            "folder: meta.json: invalid JSON at byte 22: unexpected end of text");
}

TEST(TensorDict, LiesInAnother) {
  const Checkpoint checkpoint = Read({{"meta.json", Meta(R"("a":{"type":"TensorDict"})")},
                                      {"a/meta.json", Meta("\"t\":" + kBytes)},
                                      {"a/t.memmap", "01"}});
  const auto& tensor = At<Tensor>(GroupAt(checkpoint.root, "a"), "t");
  EXPECT_EQ(Text(tensor), "01");
  EXPECT_EQ(tensor.member, "a/t.memmap");
}

TEST(TensorDict, ThatIsMissingIsReportedAndCostsNoOther) {
  const Checkpoint checkpoint = Read(
      {{"meta.json", Meta(R"("a":{"type":"TensorDict"},"b":{"type":"TensorDict"},"t":)" + kBytes)},
       {"b/x", ""},
       {"t.memmap", "01"}});
  EXPECT_THAT(checkpoint.warnings, ElementsAre("collection 'a': its directory is missing",
                                               "collection 'b': b/meta.json: no such file"));
  EXPECT_EQ(Text(At<Tensor>(checkpoint.root, "t")), "01");
  EXPECT_EQ(At<ckptfs::Value>(checkpoint.root, "a").json,
            R"({"class":"tensordict","error":"its directory is missing"})");
}

TEST(TensorDict, OfVersion3HasAllDirectories) {
  const Checkpoint checkpoint = Read({{"meta.json", Meta("\"t\":" + kBytes)},
                                      {"t.memmap", "01"},
                                      {"a/meta.json", Meta("")},
                                      {"b/readme", ""}});
  EXPECT_THAT(GroupAt(checkpoint.root, "a").members, IsEmpty());
  EXPECT_EQ(checkpoint.root.members.size(), 2U);
}

TEST(TensorDict, OfLaterVersionsHasListedDirectoriesOnly) {
  const Checkpoint checkpoint =
      Read({{"meta.json", Meta(R"("t":{"shape":[0],"dtype":"torch.int8","is_nested":false})")},
            {"a/meta.json", Meta("")}});
  EXPECT_EQ(checkpoint.root.members.size(), 1U);
}

TEST(TensorDict, DeeperThanItsLoaderReadsIsReported) {
  Files files;
  std::string path;
  for (int i = 0; i < 200; ++i, path += "a/") {
    files[path + "meta.json"] = Meta(R"("a":{"type":"TensorDict"})");
  }
  EXPECT_THAT(Read(files).warnings, ElementsAre(HasSubstr("is nested more than 128 deep")));
}

TEST(TensorDict, IsReadWithTheJsonOfPython) {
  const Checkpoint checkpoint = Read({{"meta.json", Meta(R"("v":{"type":"NonTensorData"})")},
                                      {"v/meta.json", Value(R"(,"data":[NaN,-Infinity,1e999,
                                        123456789012345678901234567890,"\ud800"])")}});
  const auto& value = At<ckptfs::Value>(checkpoint.root, "v");
  EXPECT_EQ(value.json,
            R"(["NaN","-Infinity","Infinity","123456789012345678901234567890","\ud800"])");
  EXPECT_THAT(value.annotations,
              ElementsAre(Pair("python_types", R"({"/0":"float","/1":"float","/2":"float",)"
                                               R"("/3":"int"})")));
}

// A value `v` with this meta.json, and files beside it.
ckptfs::Value ValueOf(const std::string& meta, const Files& files = {}) {
  Files all = {{"meta.json", Meta(R"("v":{"type":"NonTensorData"})")}, {"v/meta.json", meta}};
  for (const auto& [name, bytes] : files) all["v/" + name] = bytes;
  return At<ckptfs::Value>(Read(std::move(all)).root, "v");
}

TEST(NonTensorData, HasItsDataInJson) {
  const auto value = ValueOf(Value(R"(,"data":{"a":[1]},"_metadata":null,"_is_non_tensor":true)"));
  EXPECT_EQ(value.json, R"({"a":[1]})");
  EXPECT_EQ(value.python_type, "");
  EXPECT_EQ(value.collection.text, "");
}

TEST(NonTensorData, WithoutDataIsNone) { EXPECT_EQ(ValueOf(Value("")).json, "null"); }

TEST(NonTensorData, KeepsWhatItHasBesideItsData) {
  EXPECT_EQ(ValueOf(Value(R"(,"data":1,"_metadata":{"k":2})")).collection.text,
            R"("_type":"<class 'tensordict.tensorclass.NonTensorData'>","_metadata":{"k":2})");
}

TEST(NonTensorData, OfAnotherClassKeepsIt) {
  const auto value = ValueOf(R"({"_type":"<class 'tensordict.tensorclass.MetaData'>","data":1})");
  EXPECT_EQ(value.collection.text, R"("_type":"<class 'tensordict.tensorclass.MetaData'>")");
  EXPECT_EQ(value.python_type, "tensordict.tensorclass.MetaData");
}

TEST(NonTensorData, HasTheBatchSizeThatOldVersionsSaved) {
  const auto value =
      ValueOf(Value(R"(,"data":1)"),
              {{"_tensordict/meta.json",
                R"({"shape":[3],"device":"cpu","_type":"<class 'tensordict._td.TensorDict'>"})"}});
  EXPECT_EQ(value.collection.inner,
            R"("shape":[3],"device":"cpu","_type":"<class 'tensordict._td.TensorDict'>")");
}

std::string FieldsPickle() {
  return PickleWriter().EmptyDict().Text("data").Mark().Int(5).Int(6).Tuple().SetItem().Finish();
}

TEST(NonTensorData, IsReadFromItsPickle) {
  const auto value = ValueOf(Value(""), {{"other.pickle", FieldsPickle()}});
  EXPECT_EQ(value.json, "[5,6]");
  EXPECT_EQ(value.python_type, "tuple");
}

TEST(NonTensorData, WithACorruptPickleIsReported) {
  const auto value = ValueOf(Value(""), {{"other.pickle", "x"}});
  EXPECT_THAT(value.json, HasSubstr(R"({"class":"object","error":"v/other.pickle: )"));
}

TEST(NonTensorData, AtTheRootIsAValue) {
  EXPECT_EQ(At<ckptfs::Value>(Read({{"meta.json", Value(R"(,"data":7)")}}).root, "value").json,
            "7");
}

const std::string kStack = R"({"_type":"<class 'tensordict.tensorclass.NonTensorStack'>",)"
                           R"("stack_dim":0,"device":null,"data":)";

TEST(NonTensorStack, HasItsListInJson) {
  const auto value = ValueOf(kStack + R"(["a","b"]})");
  EXPECT_EQ(value.json, R"(["a","b"])");
  EXPECT_EQ(value.collection.text,
            R"("_type":"<class 'tensordict.tensorclass.NonTensorStack'>","stack_dim":0,)"
            R"("device":null)");
}

TEST(NonTensorStack, OfWhatJsonCannotHoldIsAStackOfValues) {
  const std::string pickle =
      PickleWriter().EmptyList().Mark().Int(1).Int(2).Tuple().Append().Int(3).Append().Finish();
  const Checkpoint checkpoint = Read({{"meta.json", Meta(R"("s":{"type":"NonTensorStack"})")},
                                      {"s/meta.json", kStack + R"("pickle.pkl"})"},
                                      {"s/pickle.pkl", pickle}});
  const Group& stack = GroupAt(checkpoint.root, "s");
  EXPECT_EQ(stack.collection.text,
            R"("stack_dim":0,"_type":"<class 'tensordict.tensorclass.NonTensorStack'>")");
  EXPECT_EQ(At<ckptfs::Value>(stack, "0").json, "[1,2]");
  EXPECT_EQ(At<ckptfs::Value>(stack, "0").python_type, "tuple");
  EXPECT_EQ(At<ckptfs::Value>(stack, "1").json, "3");
}

TEST(NonTensorStack, OpensNoOtherFile) {
  const Checkpoint checkpoint = Read({{"meta.json", Meta(R"("s":{"type":"NonTensorStack"})")},
                                      {"s/meta.json", kStack + R"("../secret"})"}});
  EXPECT_THAT(checkpoint.warnings,
              ElementsAre("collection 's': s/meta.json: its data is neither a list nor "
                          "'pickle.pkl'"));
}

TEST(LazyStack, HasNumberedMembers) {
  const Checkpoint checkpoint =
      Read({{"meta.json", R"({"_type":"<class 'tensordict._lazy.LazyStackedTensorDict'>",
                              "stack_dim":1,"stack_dim_name":"time"})"},
            {"0/meta.json", Meta("")},
            {"1/meta.json", Meta("")},
            {"3/meta.json", Meta("")}});
  EXPECT_EQ(checkpoint.root.members.size(), 2U);
  EXPECT_EQ(checkpoint.root.collection.text,
            R"("stack_dim":1,"stack_dim_name":"time",)"
            R"("_type":"<class 'tensordict._lazy.LazyStackedTensorDict'>")");
}

TEST(LazyView, KeepsHowItLooksAtItsSource) {
  const Checkpoint checkpoint =
      Read({{"meta.json", R"({"_type":"<class 'tensordict._lazy._PermutedTensorDict'>",
                              "custom_op":"permute","custom_op_kwargs":{"dims":[1,0]}})"},
            {"_source/meta.json", Meta("")}});
  EXPECT_THAT(GroupAt(checkpoint.root, "_source").members, IsEmpty());
  EXPECT_EQ(checkpoint.root.collection.text,
            R"("_type":"<class 'tensordict._lazy._PermutedTensorDict'>",)"
            R"("custom_op":"permute","custom_op_kwargs":{"dims":[1,0]})");
}

TEST(TensorClass, HasItsTensorsAndItsFields) {
  const std::string fields =
      PickleWriter().EmptyDict().Text("pair").Mark().Int(5).Int(6).Tuple().SetItem().Finish();
  const Checkpoint checkpoint =
      Read({{"meta.json", R"({"_type":"<class '__main__.Foo'>","name":"n","pair":null})"},
            {"other.pickle", fields},
            {"_tensordict/meta.json", Meta("\"t\":" + kBytes)},
            {"_tensordict/t.memmap", "01"}});
  EXPECT_TRUE(checkpoint.root.collection.is_closed);
  EXPECT_EQ(checkpoint.root.collection.text,
            R"("_type":"<class '__main__.Foo'>","name":"n","pair":[5,6])");
  EXPECT_THAT(checkpoint.root.annotations, ElementsAre(Pair("field_types", R"({"pair":"tuple"})")));
  EXPECT_EQ(Text(At<Tensor>(GroupAt(checkpoint.root, "_tensordict"), "t")), "01");
}

TEST(TensorClass, ReportsMissingFields) {
  const Checkpoint checkpoint = Read({{"meta.json", R"({"_type":"<class '__main__.Foo'>"})"},
                                      {"other.pickle", "x"},
                                      {"_tensordict/meta.json", Meta("")}});
  EXPECT_THAT(checkpoint.warnings, ElementsAre(HasSubstr("other.pickle: ")));
  EXPECT_THAT(At<ckptfs::Value>(checkpoint.root, "lost_fields").json, HasSubstr("other.pickle: "));
}

// Little-endian int64 numbers.
std::string Numbers(const std::vector<int64_t>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(int64_t)};
}

const std::string kNested = R"({"shape":[2,2],"dtype":"torch.uint8","is_nested":true})";

TEST(Nested, HasTheElementsOfAllTensorsInIt) {
  const Checkpoint checkpoint =
      OneTensor(kNested, {{"t.memmap", "0123456"}, {"t.shape.memmap", Numbers({1, 3, 2, 2})}});
  const auto& tensor = At<Tensor>(checkpoint.root, "t");
  EXPECT_EQ(Text(tensor), "0123456");
  ASSERT_NE(tensor.sizes, nullptr);
  EXPECT_EQ(tensor.sizes->shape, (std::vector<uint64_t>{2, 2}));
}

TEST(Nested, ReportsInvalidShapes) {
  const auto warning = [](Files files) {
    return OneTensor(kNested, std::move(files)).warnings.at(0);
  };
  EXPECT_EQ(warning({{"t.memmap", "0"}}),
            "tensor 't': its shapes: no such file: 't.shape.memmap': reading it will fail");
  EXPECT_EQ(warning({{"t.memmap", "0"}, {"t.shape.memmap", "0"}}),
            "tensor 't': its shapes: its file: size mismatch (found 1 bytes, dtype and shape need "
            "32): reading "
            "it will fail");
  EXPECT_EQ(warning({{"t.memmap", "0"}, {"t.shape.memmap", Numbers({1, -1, 1, 1})}}),
            "tensor 't': the shapes of its components have the invalid size -1: reading it will "
            "fail");
  EXPECT_EQ(warning({{"t.memmap", "0"}, {"t.shape.memmap", Numbers({1, 1, 1, 1})}}),
            "tensor 't': its file: size mismatch (found 1 bytes, dtype and shape need 2): reading "
            "it will fail");
}

TEST(Nested, IsNotMistakenForATensorThatHasTheFileOfItsShapes) {
  const Checkpoint checkpoint =
      Read({{"meta.json", Meta("\"t\":" + kNested + R"(,"t.shape":)" + kBytes)},
            {"t.memmap", "0"},
            {"t.shape.memmap", Numbers({1, 0, 1, 1})}});
  EXPECT_THAT(
      checkpoint.warnings,
      ElementsAre("tensor 't': is nested, but a tensor 't.shape' has the file of its shapes: "
                  "reading it will fail"));
}

TEST(TensorDictArchive, IsADirectoryInAZip) {
  ZipWriter zip;
  zip.Add("meta.json", Meta(R"("a":{"type":"TensorDict"},"t":)" + kBytes));
  zip.Add("a/meta.json", Meta("\"t\":" + kBytes));
  zip.Add("a/t.memmap", "23");
  zip.Add("t.memmap", "01");
  const Checkpoint checkpoint = ReadCheckpoint(std::make_shared<MemorySource>(zip.Finish()));
  EXPECT_EQ(checkpoint.format, "tensordict");
  EXPECT_EQ(Text(At<Tensor>(checkpoint.root, "t")), "01");
  EXPECT_EQ(Text(At<Tensor>(GroupAt(checkpoint.root, "a"), "t")), "23");
}

TEST(TensorDictArchive, NeedsAMetaJsonOfTensorDict) {
  ZipWriter zip;
  zip.Add("meta.json", "{}");
  EXPECT_EQ(ErrorOf({.file = std::make_shared<MemorySource>(zip.Finish()),
                     .folder = nullptr,
                     .file_name = ""}),
            "memory: meta.json: has no _type, which names the class of what was saved");
}

// A consolidated file.
std::string Consolidated(const std::string& data, const std::string& json) {
  return data + json + Numbers({static_cast<int64_t>(json.size())});
}

std::string Level(const std::string& leaves, const std::string& more = "",
                  const std::string& metadata = R"("batch_size":[])",
                  const std::string& name = "TensorDict") {
  return R"({"cls":")" + name + R"(","leaves":{)" + leaves + R"(},"non_tensors":{},)" +
         R"("cls_metadata":{)" + metadata + "}" + more + "}";
}

Checkpoint ReadBytes(std::string bytes) {
  return ReadCheckpoint(std::make_shared<MemorySource>(std::move(bytes)));
}

std::string ErrorOfBytes(std::string bytes) {
  return ErrorOf({.file = std::make_shared<MemorySource>(std::move(bytes)),
                  .folder = nullptr,
                  .file_name = ""});
}

TEST(Consolidated, HasTensorsAtTheirPlaces) {
  const Checkpoint checkpoint = ReadBytes(Consolidated(
      "01234567", Level(R"("t":["torch.uint8",[2],1,8,5],"u":["torch.int16",[],6,8,0])")));
  EXPECT_EQ(checkpoint.format, "tensordict");
  EXPECT_EQ(Text(At<Tensor>(checkpoint.root, "t")), "12");
  EXPECT_EQ(Text(At<Tensor>(checkpoint.root, "u")), "67");
  EXPECT_EQ(At<Tensor>(checkpoint.root, "t").file_offset, 1U);
}

TEST(Consolidated, IsOneWhateverItBeginsWith) {
  const std::string leaf = R"("t":["torch.uint8",[16],0,16,0])";
  const std::string zip = "PK\3\4............";
  const std::string safetensors("\2\0\0\0\0\0\0\0{}......", 16);
  const std::string pickle = "\x80\2..............";
  EXPECT_EQ(Text(At<Tensor>(ReadBytes(Consolidated(zip, Level(leaf))).root, "t")), zip);
  EXPECT_EQ(Text(At<Tensor>(ReadBytes(Consolidated(safetensors, Level(leaf))).root, "t")),
            safetensors);
  EXPECT_EQ(Text(At<Tensor>(ReadBytes(Consolidated(pickle, Level(leaf))).root, "t")), pickle);
}

TEST(Consolidated, IsOneIfItsNumbersLookLikeTheHeaderOfSafetensors) {
  constexpr size_t kSize = size_t{128} << 10U;
  std::string numbers = Numbers({1000, 0x227b});  // A length, and "{\"".
  numbers.resize(kSize);
  const std::string leaf = R"("t":["torch.int64",[16384],0,131072,0])";
  EXPECT_EQ(Text(At<Tensor>(ReadBytes(Consolidated(numbers, Level(leaf))).root, "t")), numbers);
}

TEST(Consolidated, IsNoFileThatEndsInAnotherWay) {
  const auto* const sentence = "memory: not a checkpoint in a supported format";
  const std::string level = Level("");
  EXPECT_EQ(ErrorOfBytes("....." + level + Numbers({static_cast<int64_t>(level.size()) + 1})),
            sentence);
  EXPECT_EQ(ErrorOfBytes("....." + level + Numbers({1000})), sentence);
  EXPECT_EQ(ErrorOfBytes("....." + level + Numbers({-1})), sentence);
  EXPECT_EQ(ErrorOfBytes(Consolidated(".....", R"({"cls":"TensorDict"})")), sentence);
}

TEST(Consolidated, HasLevels) {
  const Checkpoint checkpoint = ReadBytes(Consolidated(
      "0123", Level("", R"(,"a.b":)" + Level(R"("t":["torch.int8",[4],0,4,0])", "",
                                             R"("batch_size":[4],"names":["n"],"device":"cpu")"))));
  const Group& group = GroupAt(checkpoint.root, "a.b");
  EXPECT_EQ(checkpoint.root.members.front().key.kind, Key::Kind::kWhole);
  EXPECT_EQ(Text(At<Tensor>(group, "t")), "0123");
  EXPECT_EQ(group.collection.Json(), R"("shape":[4],"_names":["n"],"device":"cpu",)"
                                     R"("_type":"<class 'tensordict._td.TensorDict'>")");
}

TEST(Consolidated, HasStacks) {
  const Checkpoint checkpoint = ReadBytes(
      Consolidated("", Level("", R"(,"s":)" + Level("", ",\"0\":" + Level(""),
                                                    R"("stack_dim":1,"stack_dim_name":null)",
                                                    "LazyStackedTensorDict"))));
  const Group& stack = GroupAt(checkpoint.root, "s");
  EXPECT_EQ(stack.collection.text,
            R"("stack_dim":1,"_type":"<class 'tensordict._lazy.LazyStackedTensorDict'>")");
  EXPECT_EQ(stack.members.size(), 1U);
}

TEST(Consolidated, HasNoStackWithOtherKeysThanNumbers) {
  const Checkpoint checkpoint = ReadBytes(
      Consolidated("", Level("", R"(,"s":)" + Level("", ",\"stack_dim\":" + Level(""),
                                                    R"("stack_dim":1)", "LazyStackedTensorDict"))));
  EXPECT_THAT(checkpoint.warnings,
              ElementsAre("collection 's': is a stack, but has a member 'stack_dim'"));
}

TEST(Consolidated, HasTensorClasses) {
  const Checkpoint checkpoint =
      ReadBytes(Consolidated("", Level("", "", R"("batch_size":[])", "<class '__main__.Foo'>")));
  EXPECT_TRUE(checkpoint.root.collection.is_closed);
  EXPECT_EQ(checkpoint.root.collection.text, R"("_type":"<class '__main__.Foo'>")");
  EXPECT_EQ(checkpoint.root.members.front().key.text, "_tensordict");
}

TEST(Consolidated, HasValuesWithTheirBatchSizes) {
  const Checkpoint checkpoint = ReadBytes(Consolidated(
      "", R"({"cls":"TensorDict","leaves":{},"non_tensors":{"a":[NaN,[3],null],"b":[1]},)"
          R"("cls_metadata":{}})"));
  const auto& value = At<ckptfs::Value>(checkpoint.root, "a");
  EXPECT_EQ(value.json, "\"NaN\"");
  EXPECT_EQ(value.collection.inner,
            R"("shape":[3],"device":"None","_type":"<class 'tensordict._td.TensorDict'>")");
  EXPECT_EQ(At<ckptfs::Value>(checkpoint.root, "b").json, "1");
}

TEST(Consolidated, HasJaggedTensorsAsTheirParts) {
  const Checkpoint checkpoint = ReadBytes(Consolidated(
      std::string(40, 'x'),
      Level(
          R"("<NJT_VALUES>j":["torch.uint8",[5],0,8,3],)"
          R"("<NJT_OFFSETS>j":["torch.int64",[3],8,32,0,1],"<NJT_LENGTHS>k":["torch.int8",[],0,1,0])")));
  const Group& jagged = GroupAt(checkpoint.root, "j");
  EXPECT_EQ(At<Tensor>(jagged, "_values").data.length, 5U);
  EXPECT_EQ(At<Tensor>(jagged, "_offsets").data.length, 24U);
  EXPECT_THAT(jagged.about,
              testing::Contains(Pair(
                  "recipe",
                  "\"torch.nested.nested_tensor_from_jagged(_values, _offsets, jagged_dim=1)\"")));
  EXPECT_EQ(At<Tensor>(checkpoint.root, "<NJT_LENGTHS>k").data.length, 1U);
}

TEST(Consolidated, ReportsATensorOutOfRange) {
  const auto warning = [](const std::string& leaf) {
    return ReadBytes(Consolidated("0123", Level(R"("sound":["torch.int8",[1],0,1,0],"t":)" + leaf)))
        .warnings.at(0);
  };
  EXPECT_EQ(
      warning(R"(["torch.int8",[4],0,5,0])"),
      "tensor 't': data out of range: bytes 0 to 5 with 0 of padding (tensors end at byte 4): "
      "reading it will fail");
  EXPECT_EQ(
      warning(R"(["torch.int8",[4],4,0,0])"),
      "tensor 't': data out of range: bytes 4 to 0 with 0 of padding (tensors end at byte 4): "
      "reading it will fail");
  EXPECT_EQ(
      warning(R"(["torch.int8",[4],0,4,5])"),
      "tensor 't': data out of range: bytes 0 to 4 with 5 of padding (tensors end at byte 4): "
      "reading it will fail");
  EXPECT_EQ(
      warning(R"(["torch.int8",[3],0,4,0])"),
      "tensor 't': size mismatch (found 4 bytes, dtype and shape need 3): reading it will fail");
  EXPECT_EQ(warning("[]"),
            "tensor 't': its metadata are not a list of 5 to 6 items: reading it will fail");
  EXPECT_EQ(warning(R"(["torch.int8",[4],-1,4,0])"),
            "tensor 't': its begin is not a whole number: reading it will fail");
}

TEST(Consolidated, OfWhichNoTensorCanBeReadIsRefused) {
  EXPECT_EQ(ErrorOfBytes(Consolidated("", Level(R"("t":["torch.int8",[1],0,1,0])"))),
            "memory: metadata at byte 0: tensor 't': data out of range: bytes 0 to 1 with 0 of "
            "padding (tensors end at byte 0)");
}

TEST(Consolidated, ReportsAnInvalidLevel) {
  const auto warning = [](const std::string& level) {
    return ReadBytes(Consolidated("", Level("", ",\"a\":" + level))).warnings.at(0);
  };
  EXPECT_EQ(warning("{}"), "collection 'a': its metadata have no cls, which names its class");
  EXPECT_EQ(warning(R"({"cls":"TensorDict","cls_metadata":{},"leaves":[]})"),
            "collection 'a': its metadata have no object 'leaves'");
}

}  // namespace
}  // namespace ckptfs
