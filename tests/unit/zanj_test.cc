#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "parser/base/error.h"
#include "parser/detect.h"
#include "tests/support/pickle_writer.h"
#include "tests/support/reading.h"
#include "tests/support/sources.h"
#include "tests/support/zip_writer.h"

namespace ckptfs {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;
using Named = std::vector<std::pair<std::string, std::string>>;

ByteSourcePtr FileOf(const std::string& json, const Named& members = {}) {
  ZipWriter zip;
  zip.AddDeflated("__zanj_meta__.json", "{}");
  zip.AddDeflated("__zanj__.json", json);
  for (const auto& [name, bytes] : members) zip.Add(name, bytes);
  return zip.Source();
}

Checkpoint Read(const std::string& json, const Named& members = {}) {
  return ReadCheckpoint(FileOf(json, members));
}

std::string ErrorOf(const std::string& json) {
  return ErrorOf(Source{.file = FileOf(json), .folder = nullptr, .file_name = ""});
}

// An object with one array, whose mode, data, shape and type these are.
std::string Array(std::string_view mode, std::string_view data, std::string_view shape,
                  std::string_view dtype) {
  return fmt::format(R"({{"x":{{"__muutils_format__":"numpy.ndarray:{}","data":{},"shape":{},)"
                     R"("dtype":"{}","n_elements":0}}}})",
                     mode, data, shape, dtype);
}

// The elements of a flat list of that type.
std::string Elements(std::string_view data, size_t count, std::string_view dtype) {
  const Checkpoint checkpoint =
      Read(Array("array_list_meta", data, fmt::format("[{}]", count), dtype));
  return ReadString(TensorAt(checkpoint, "x").data);
}

// Returns the error of an array.
std::string Damage(std::string_view mode, std::string_view data, std::string_view shape,
                   std::string_view dtype) {
  const Checkpoint checkpoint = Read(Array(mode, data, shape, dtype));
  const Content& content = checkpoint.root.members.front().content;
  if (const auto* tensor = std::get_if<Tensor>(&content)) {
    return std::string(MessageOf(tensor->error));
  }
  return std::get<Value>(content).json;
}

template <typename T>
std::string Bytes(std::initializer_list<T> elements) {
  std::string bytes(elements.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), std::data(elements), bytes.size());
  return bytes;
}

std::string Npy(std::string_view descr, std::string_view shape, std::string_view data,
                std::string_view order = "False") {
  std::string text =
      fmt::format("{{'descr': {}, 'fortran_order': {}, 'shape': {}, }}", descr, order, shape);
  text.resize(117, ' ');
  return std::string("\x93NUMPY\1\0\x76\0", 10) + text + '\n' + std::string(data);
}

std::string Outside(std::string_view dtype, std::string_view shape) {
  return fmt::format(R"({{"x":{{"__muutils_format__":"numpy.ndarray:external","$ref":"x.npy",)"
                     R"("shape":{},"dtype":"{}","n_elements":0}}}})",
                     shape, dtype);
}

const Table& TableAt(const Checkpoint& checkpoint, size_t index) {
  return std::get<Table>(checkpoint.root.members.at(index).content);
}

TEST(Zanj, IsTheFormatOfAnArchiveWithItsObject) { EXPECT_EQ(Read("{}").format, "zanj"); }

TEST(Zanj, ReadsArraysInLists) {
  const Checkpoint checkpoint =
      Read(Array("array_list_meta", "[[1,2,3],[4,5,6]]", "[2,3]", "int16"));
  const Tensor& tensor = TensorAt(checkpoint, "x");
  EXPECT_EQ(tensor.dtype, Dtype::kInt16);
  EXPECT_EQ(tensor.shape, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(ReadString(tensor.data), Bytes<int16_t>({1, 2, 3, 4, 5, 6}));
  EXPECT_THAT(tensor.annotations, ElementsAre(Pair("python_type", "\"numpy.ndarray\"")));
  EXPECT_FALSE(tensor.is_in_file);
}

TEST(Zanj, ReadsTensorsOfTorch) {
  const Checkpoint checkpoint =
      Read(R"({"x":{"__muutils_format__":"torch.Tensor:zero_dim","data":2.5,"shape":[],)"
           R"("dtype":"torch.float32","n_elements":1}})");
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "x").data), Bytes<float>({2.5}));
  EXPECT_TRUE(TensorAt(checkpoint, "x").shape.empty());
  EXPECT_THAT(TensorAt(checkpoint, "x").annotations, IsEmpty());
}

TEST(Zanj, ReadsArraysInHex) {
  const Checkpoint checkpoint = Read(Array("array_hex_meta", "\"0100fF00\"", "[2]", "int16"));
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "x").data), Bytes<int16_t>({1, 255}));
}

TEST(Zanj, ReadsArraysInBase64) {
  const Checkpoint checkpoint = Read(Array("array_b64_meta", "\"AQD/AP7/\"", "[3]", "int16"));
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "x").data), Bytes<int16_t>({1, 255, -2}));
}

TEST(Zanj, ReadsBase64ThatIsPadded) {
  const Checkpoint checkpoint = Read(Array("array_b64_meta", "\"/wA=\"", "[1]", "int16"));
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "x").data), Bytes<int16_t>({255}));
}

TEST(Zanj, TurnsBigEndianHexAround) {
  const Checkpoint checkpoint = Read(Array("array_hex_meta", "\"00010002\"", "[2]", ">i2"));
  EXPECT_EQ(TensorAt(checkpoint, "x").dtype, Dtype::kInt16);
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "x").data), Bytes<int16_t>({1, 2}));
}

TEST(Zanj, TakesNumbersInListsAsTheyAreThoughTheArrayWasBigEndian) {
  EXPECT_EQ(Elements("[1,-2]", 2, ">i4"), Bytes<int32_t>({1, -2}));
}

TEST(Zanj, ShowsTypesThatTorchHasNotAsBytes) {
  const Checkpoint checkpoint =
      Read(Array("array_hex_meta", "\"0102030405060708\"", "[4]", "int3"));
  const Tensor& tensor = TensorAt(checkpoint, "x");
  EXPECT_EQ(tensor.foreign_dtype, "numpy.int3");
  EXPECT_EQ(tensor.shape, (std::vector<uint64_t>{4, 2}));
}

TEST(Zanj, ShowsListsOfTextsAsAValue) {
  const Checkpoint checkpoint = Read(Array("array_list_meta", R"(["a","bc"])", "[2]", "<U2"));
  const Value& value = ValueAt(checkpoint, "x");
  EXPECT_EQ(value.json, R"(["a","bc"])");
  EXPECT_EQ(value.python_type, "numpy.ndarray");
  EXPECT_THAT(value.annotations,
              ElementsAre(Pair("numpy_dtype", "\"<U2\""), Pair("numpy_shape", "[2]")));
}

TEST(Zanj, TrustsTheShapeOfAnArrayWithoutElements) {
  const Checkpoint checkpoint = Read(Array("array_list_meta", "[]", "[0,3]", "float64"));
  EXPECT_EQ(TensorAt(checkpoint, "x").shape, (std::vector<uint64_t>{0, 3}));
  EXPECT_EQ(MessageOf(TensorAt(checkpoint, "x").error), "");
}

TEST(Zanj, ReadsFloatsOfAllTypes) {
  EXPECT_EQ(Elements("[1.5,NaN,-Infinity,-0.0]", 4, "float64"),
            Bytes<uint64_t>(
                {0x3FF8000000000000, 0x7FF8000000000000, 0xFFF0000000000000, 0x8000000000000000}));
  EXPECT_EQ(Elements("[0.10000000149011612,NaN,Infinity]", 3, "float32"),
            Bytes<uint32_t>({0x3DCCCCCD, 0x7FC00000, 0x7F800000}));
  EXPECT_EQ(Elements("[1.0,-65504.0,5.960464477539063e-08,NaN,-Infinity]", 5, "float16"),
            Bytes<uint16_t>({0x3C00, 0xFBFF, 0x0001, 0x7E00, 0xFC00}));
  EXPECT_EQ(Elements("[1.0,3.3895313892515355e+38,9.183549615799121e-41,NaN]", 4, "bfloat16"),
            Bytes<uint16_t>({0x3F80, 0x7F7F, 0x0001, 0x7FC0}));
  EXPECT_EQ(Elements("[448.0,-0.001953125,NaN,-0.0]", 4, "float8_e4m3fn"), "\x7E\x81\x7F\x80");
  EXPECT_EQ(Elements("[57344.0,1.52587890625e-05,NaN,Infinity]", 4, "float8_e5m2"),
            "\x7B\x01\x7E\x7C");
  EXPECT_EQ(Elements("[240.0,NaN,1.0]", 3, "float8_e4m3fnuz"), "\x7F\x80\x40");
  EXPECT_EQ(Elements("[57344.0,NaN,1.0]", 3, "float8_e5m2fnuz"), "\x7F\x80\x40");
  EXPECT_EQ(Elements("[1.0,NaN,1.7014118346046923e+38]", 3, "float8_e8m0fnu"), "\x7F\xFF\xFE");
}

TEST(Zanj, ReadsTheLargestIntegers) {
  EXPECT_EQ(Elements("[18446744073709551615]", 1, "uint64"), std::string(8, '\xFF'));
  EXPECT_EQ(Elements("[-9223372036854775808,9223372036854775807]", 2, "int64"),
            Bytes<int64_t>({INT64_MIN, INT64_MAX}));
  EXPECT_EQ(Elements("[-128,127]", 2, "int8"), "\x80\x7F");
}

TEST(Zanj, TakesWholeNumbersForFloats) {
  EXPECT_EQ(Elements("[1,-2]", 2, "float32"), Bytes<float>({1, -2}));
}

TEST(Zanj, RefusesNumbersThatTheTypeCannotHold) {
  EXPECT_EQ(Damage("array_list_meta", "[128]", "[1]", "int8"), "contains 128, which is not int8");
  EXPECT_EQ(Damage("array_list_meta", "[-1]", "[1]", "uint8"), "contains -1, which is not uint8");
  EXPECT_EQ(Damage("array_list_meta", "[0.1]", "[1]", "float32"),
            "contains 0.1, which is not float32");
  EXPECT_EQ(Damage("array_list_meta", "[65520.0]", "[1]", "float16"),
            "contains 65520, which is not float16");
  EXPECT_EQ(Damage("array_list_meta", "[1e39]", "[1]", "float32"),
            "contains 1e+39, which is not float32");
  EXPECT_EQ(Damage("array_list_meta", "[Infinity]", "[1]", "float8_e4m3fn"),
            "contains inf, which is not float8_e4m3fn");
  EXPECT_EQ(Damage("array_list_meta", "[-0.0]", "[1]", "float8_e5m2fnuz"),
            "contains -0, which is not float8_e5m2fnuz");
  EXPECT_EQ(Damage("array_list_meta", "[3.0]", "[1]", "float8_e8m0fnu"),
            "contains 3, which is not float8_e8m0fnu");
  EXPECT_EQ(Damage("array_list_meta", "[9007199254740993]", "[1]", "float64"),
            "contains 9007199254740993, which is not float64");
  EXPECT_EQ(Damage("array_list_meta", "[1.0]", "[1]", "int64"), "contains 1, which is not int64");
  EXPECT_EQ(Damage("array_list_meta", "[1]", "[1]", "bool"), "contains 1, which is not bool");
  EXPECT_EQ(Damage("array_list_meta", "[\"1\"]", "[1]", "int8"), "contains '1', which is not int8");
  EXPECT_EQ(Damage("array_list_meta", "[null]", "[1]", "int8"), "contains null, which is not int8");
}

TEST(Zanj, RefusesListsThatAreNotOfTheShape) {
  EXPECT_EQ(Damage("array_list_meta", "[[1,2],[3]]", "[2,2]", "int8"),
            "a list of its data has 1 items, but its shape needs 2");
  EXPECT_EQ(Damage("array_list_meta", "[1,2]", "[2,2]", "int8"),
            "its data have fewer dimensions than its shape");
  EXPECT_EQ(Damage("array_list_meta", "[[1]]", "[1]", "int8"),
            "contains a list, which is not int8");
}

TEST(Zanj, RefusesTextsThatAreNoElements) {
  EXPECT_EQ(Damage("array_hex_meta", "\"010\"", "[1]", "int8"),
            "its data have 3 hex digits, an odd number");
  EXPECT_EQ(Damage("array_hex_meta", "\"0g\"", "[1]", "int8"),
            "its data have '0g' at character 0, but must be hex");
  EXPECT_EQ(Damage("array_hex_meta", "\"0102\"", "[1]", "int8"),
            "has 2 bytes, but its 1 elements need 1");
  EXPECT_EQ(Damage("array_b64_meta", "\"AAA\"", "[1]", "int8"),
            "its data have 3 characters, but base64 comes in groups of 4");
  EXPECT_EQ(Damage("array_b64_meta", "\"AA-A\"", "[3]", "int8"),
            "its data have '-' at character 2, but must be base64");
  EXPECT_EQ(Damage("array_b64_meta", "[1]", "[3]", "int8"), "its data are not text");
}

TEST(Zanj, RefusesAnArrayWithoutAShape) {
  EXPECT_EQ(Damage("array_list_meta", "[1]", "7", "int8"),
            R"({"class":"torch.Tensor","error":"shape: not a list"})");
  EXPECT_EQ(Damage("array_list_meta", "[1]", "[-1]", "int8"),
            R"({"class":"torch.Tensor","error":"its shape has an item that is not a size"})");
}

TEST(Zanj, ReadsArraysThatNumpySaved) {
  const Checkpoint checkpoint =
      Read(Outside("int32", "[2]"), {{"x.npy", Npy("'<i4'", "(2,)", "01234567")}});
  const Tensor& tensor = TensorAt(checkpoint, "x");
  EXPECT_EQ(tensor.dtype, Dtype::kInt32);
  EXPECT_EQ(ReadString(tensor.data), "01234567");
  EXPECT_EQ(tensor.member, "x.npy");
  EXPECT_TRUE(tensor.is_in_file);
}

TEST(Zanj, BelievesTheHeaderOfAnArrayMoreThanTheJson) {
  const Checkpoint checkpoint =
      Read(Outside("int64", "[1]"), {{"x.npy", Npy("'<i4'", "(2,)", "01234567")}});
  const Tensor& tensor = TensorAt(checkpoint, "x");
  EXPECT_EQ(tensor.dtype, Dtype::kInt32);
  EXPECT_THAT(tensor.annotations,
              testing::Contains(Pair("told", R"({"dtype":"int64","shape":[1]})")));
}

TEST(Zanj, BelievesTheJsonWhereNumpyKnowsTheSizeAlone) {
  const Checkpoint brain =
      Read(Outside("bfloat16", "[2]"), {{"x.npy", Npy("'<V2'", "(2,)", "0123")}});
  EXPECT_EQ(TensorAt(brain, "x").dtype, Dtype::kBfloat16);
  const Checkpoint small =
      Read(Outside("float8_e5m2", "[2]"), {{"x.npy", Npy("'<f1'", "(2,)", "01")}});
  EXPECT_EQ(TensorAt(small, "x").dtype, Dtype::kFloat8E5m2);
  const Checkpoint complex =
      Read(Outside("complex32", "[1]"), {{"x.npy", Npy("'<W4'", "(1,)", "0123")}});
  EXPECT_EQ(TensorAt(complex, "x").dtype, Dtype::kComplex32);
}

TEST(Zanj, NamesTypesOfWhichNumpyKnowsTheSizeAlone) {
  const Checkpoint checkpoint =
      Read(Outside("int4", "[2]"), {{"x.npy", Npy("'<V1'", "(2,)", "01")}});
  EXPECT_EQ(TensorAt(checkpoint, "x").foreign_dtype, "numpy.int4");
}

TEST(Zanj, DoesNotTakeBytesForATypeOfAnotherSize) {
  const Checkpoint checkpoint =
      Read(Outside("bfloat16", "[1]"), {{"x.npy", Npy("'|V3'", "(1,)", "012")}});
  EXPECT_EQ(TensorAt(checkpoint, "x").dtype, Dtype::kOpaque);
}

TEST(Zanj, ShowsTheSizeOfAnArrayThatIsNotThere) {
  const Checkpoint checkpoint = Read(Outside("int32", "[3]"));
  EXPECT_EQ(MessageOf(TensorAt(checkpoint, "x").error), "no such member: 'x.npy'");
  EXPECT_EQ(TensorAt(checkpoint, "x").data.length, 12U);
  EXPECT_THAT(checkpoint.warnings,
              ElementsAre("tensor 'x': no such member: 'x.npy': reading it will fail"));
}

TEST(Zanj, ReadsDataThatAreOutside) {
  const Checkpoint checkpoint =
      Read(Array("array_list_meta", R"({"__muutils_format__":"list:external","$ref":"d"})", "[2,2]",
                 "int8"),
           {{"d", "[1,2]\n{\"__muutils_format__\":\"list:external\",\"$ref\":\"e\"}\n"},
            {"e", "3\n4\n"}});
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "x").data), "\1\2\3\4");
}

TEST(Zanj, ReadsAShapeThatIsOutside) {
  const Checkpoint checkpoint =
      Read(Array("array_list_meta", "[[1],[2]]",
                 R"({"__muutils_format__":"list:external","$ref":"s"})", "int8"),
           {{"s", "2\n1\n"}});
  EXPECT_EQ(TensorAt(checkpoint, "x").shape, (std::vector<uint64_t>{2, 1}));
}

TEST(Zanj, ReadsTheTagsOfItsFirstGeneration) {
  const Checkpoint checkpoint = Read(
      R"({"a":{"__format__":"external:npy","$ref":"a.npy","shape":[1],"dtype":"torch.int32"},)"
      R"("b":{"__format__":"array_list_meta","data":[1],"shape":[1],"dtype":"int8"},)"
      R"("c":{"__format__":"array_hex_meta","data":"07","shape":[1],"dtype":"int8"},)"
      R"-("d":{"__format__":"external:jsonl","$ref":"d.jsonl","data[0]":1,"len(data)":1},)-"
      R"-("e":{"__format__":"external:jsonl","$ref":"e.jsonl","columns":["x"],"len(data)":0}})-",
      {{"a.npy", Npy("'<i4'", "(1,)", "0123")}, {"d.jsonl", "1\n"}, {"e.jsonl", ""}});
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "a").data), "0123");
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "b").data), "\1");
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "c").data), "\7");
  EXPECT_EQ(TableAt(checkpoint, 3).python_type, "list");
  EXPECT_EQ(TableAt(checkpoint, 4).python_type, "pandas.DataFrame");
  EXPECT_THAT(checkpoint.warnings, IsEmpty());
}

TEST(Zanj, PrefersTheTagOfTheNewerGeneration) {
  const Checkpoint checkpoint =
      Read(R"({"x":{"__format__":"set","__muutils_format__":"frozenset","data":[1]}})");
  EXPECT_EQ(ValueAt(checkpoint, "x").python_type, "frozenset");
}

TEST(Zanj, ShowsDictsWithoutArraysAsOneValue) {
  const Checkpoint checkpoint = Read(R"({"x":{"a":1,"b":[true,null,"t"]}})");
  EXPECT_EQ(ValueAt(checkpoint, "x").json, R"({"a":1,"b":[true,null,"t"]})");
  EXPECT_EQ(ValueAt(checkpoint, "x").python_type, "");
}

TEST(Zanj, AnnotatesTypesThatJsonDoesNotHave) {
  const Checkpoint checkpoint =
      Read(R"({"x":{"s":{"__muutils_format__":"set","data":[1]},"n":NaN,"b":-99999999999999999999,)"
           R"("c":{"__muutils_format__":"C","a/b":Infinity}}})");
  const Value& value = ValueAt(checkpoint, "x");
  EXPECT_EQ(value.json,
            R"({"s":[1],"n":"NaN","b":"-99999999999999999999","c":{"a/b":"Infinity"}})");
  EXPECT_THAT(value.annotations,
              ElementsAre(Pair("python_types", R"-({"/s":"set","/n":"float","/b":"int",)-"
                                               R"-("/c/a~1b":"float","/c":"C"})-")));
}

TEST(Zanj, TakesTheLastOfTwoMembersOfOneKey) {
  const Checkpoint checkpoint = Read(R"({"x":1,"y":2,"x":[3]})");
  EXPECT_EQ(ValueAt(checkpoint, "x").json, "[3]");
  EXPECT_EQ(checkpoint.root.members.front().key.text, "x");
}

TEST(Zanj, ShowsADescribedObjectAsItsRepr) {
  const Checkpoint checkpoint =
      Read(R"({"x":{"__name__":"None","__doc__":"d","__module__":"None",)"
           R"("__class__":"<class 'numpy.float32'>","__dict__":"{}","__annotations__":"None",)"
           R"-("str":"2.5","dir":[],"type":"float32","repr":"np.float32(2.5)","code":"c",)-"
           R"("sourcefile":"/home/me/x.py"}})");
  EXPECT_EQ(ValueAt(checkpoint, "x").json, "\"np.float32(2.5)\"");
  EXPECT_EQ(ValueAt(checkpoint, "x").python_type, "numpy.float32");
}

TEST(Zanj, TakesReferencesOfUsersForPlainObjects) {
  const Checkpoint checkpoint = Read(R"({"x":{"$ref":"y.npy"},"z":{"__muutils_format__":3}})");
  EXPECT_EQ(ValueAt(checkpoint, "x").json, R"({"$ref":"y.npy"})");
  EXPECT_EQ(ValueAt(checkpoint, "z").json, R"({"__muutils_format__":3})");
}

TEST(Zanj, AnnotatesTheClassOfAnObjectWithArrays) {
  const Checkpoint checkpoint = Read(
      R"({"__muutils_format__":"Root","m":{"w":{"__muutils_format__":"numpy.ndarray:zero_dim",)"
      R"("data":1,"shape":[],"dtype":"int8"},"__muutils_format__":"Model"}})");
  EXPECT_EQ(checkpoint.root.python_type, "Root");
  const auto& group = std::get<std::unique_ptr<Group>>(checkpoint.root.members.front().content);
  EXPECT_EQ(group->python_type, "Model");
  EXPECT_EQ(group->members.size(), 1U);
}

TEST(Zanj, ShowsListsOutsideAsTheirLines) {
  const Checkpoint checkpoint =
      Read(R"({"x":{"__muutils_format__":"tuple:external","$ref":"x.jsonl"}})",
           {{"x.jsonl", "1\nNaN\n"}});
  EXPECT_EQ(TableAt(checkpoint, 0).python_type, "tuple");
  EXPECT_EQ(ReadString(TableAt(checkpoint, 0).data), "1\nNaN\n");
}

TEST(Zanj, ShowsSetsOutsideAsTheirLines) {
  const Checkpoint checkpoint =
      Read(R"({"x":{"__muutils_format__":"set","data":{"__muutils_format__":"list:external",)"
           R"("$ref":"x/data.jsonl"}}})",
           {{"x/data.jsonl", "1\n2\n"}});
  EXPECT_EQ(TableAt(checkpoint, 0).python_type, "set");
  EXPECT_EQ(ReadString(TableAt(checkpoint, 0).data), "1\n2\n");
}

TEST(Zanj, ShowsTablesInTheJsonAsLinesToo) {
  const Checkpoint checkpoint = Read(
      R"({"x":{"__format__":"pandas.DataFrame","columns":["a","b"],"data":[{"a":1,"b":"\u00e9"},)"
      R"({"a":-1,"b":NaN}],"path":["x"]}})");
  EXPECT_EQ(ReadString(TableAt(checkpoint, 0).data),
            "{\"a\": 1, \"b\": \"\\u00e9\"}\n{\"a\": -1, \"b\": NaN}\n");
  EXPECT_THAT(TableAt(checkpoint, 0).annotations,
              UnorderedElementsAre(Pair("columns", R"(["a","b"])"), Pair("rows", "2")));
}

TEST(Zanj, ShowsArraysInRowsBesideTheirLines) {
  const std::string rows =
      "{\"i\":7,\"w\":{\"__muutils_format__\":\"numpy.ndarray:zero_dim\","
      "\"data\":5,\"shape\":[],\"dtype\":\"int8\"}}\n";
  const Checkpoint checkpoint =
      Read(R"({"x":{"__muutils_format__":"list:external","$ref":"x.jsonl","data[0]":{"w":)"
           R"({"__muutils_format__":"numpy.ndarray:external","$ref":"nowhere"}}}})",
           {{"x.jsonl", rows}});
  const auto& group = std::get<std::unique_ptr<Group>>(checkpoint.root.members.front().content);
  EXPECT_EQ(ReadString(group->table->data), rows);
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "x/0/w").data), "\5");
  EXPECT_EQ(ValueAt(checkpoint, "x/0/i").json, "7");
  EXPECT_THAT(checkpoint.warnings, IsEmpty());
}

TEST(Zanj, ShowsListsWithArraysAsGroups) {
  const Checkpoint checkpoint =
      Read(R"({"x":[1,{"__muutils_format__":"numpy.ndarray:zero_dim","data":true,"shape":[],)"
           R"("dtype":"bool"},[2,3]]})");
  EXPECT_EQ(ValueAt(checkpoint, "x/0").json, "1");
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "x/1").data), "\1");
  EXPECT_EQ(ValueAt(checkpoint, "x/2").json, "[2,3]");
}

TEST(Zanj, ShowsAListAtTheRootByItsIndexes) {
  const Checkpoint checkpoint = Read("[1,\"a\"]");
  EXPECT_EQ(ValueAt(checkpoint, "0").json, "1");
  EXPECT_EQ(checkpoint.root.python_type, "list");
}

TEST(Zanj, ShowsASingleValue) { EXPECT_EQ(ValueAt(Read("\"a\""), "value").json, "\"a\""); }

TEST(Zanj, ShowsASingleArray) {
  const Checkpoint checkpoint =
      Read(R"({"__muutils_format__":"numpy.ndarray:external","$ref":".npy"})",
           {{".npy", Npy("'<i4'", "(1,)", "0123")}});
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "tensor").data), "0123");
}

TEST(Zanj, WarnsOfUnreferencedMembers) {
  EXPECT_THAT(Read("{}", {{"a.npy", ""}}).warnings,
              ElementsAre("zip: 1 members are not referred to and are ignored"));
}

TEST(Zanj, RefusesAnObjectThatIsNoJson) {
  EXPECT_EQ(ErrorOf("{"), "memory: __zanj__.json: invalid JSON at byte 1: unexpected end of text");
}

}  // namespace
}  // namespace ckptfs
