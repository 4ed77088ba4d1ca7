#include "parser/codec/npy.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/error.h"
#include "parser/io/simple_sources.h"
#include "tests/support/npy.h"
#include "tests/support/reading.h"
#include "tests/support/sources.h"

namespace ckptfs {
namespace {

using std::string_literals::operator""s;
using Shape = std::vector<uint64_t>;

npy::ArrayHeader HeaderIn(const std::string& file) {
  Budget budget = Budget::ForFile(file.size());
  return npy::ReadHeader(MemorySource(file), 0, file.size(), budget);
}

npy::ArrayHeader HeaderOf(std::string_view text, const NpyVersion& version = {}) {
  return HeaderIn(NpyOf(text, "", version));
}

// The type that a header spells so.
npy::Type TypeOf(std::string_view descr) { return HeaderOf(NpyText(descr, "()")).type; }

Shape ShapeOf(std::string_view shape) { return HeaderOf(NpyText("'<f4'", shape)).shape; }

std::string DescrOf(std::string_view descr) { return HeaderOf(NpyText(descr, "()")).descr; }

// Returns the error of a file.
std::string ErrorIn(const std::string& file) try {
  HeaderIn(file);
  return "no error";
} catch (const Error& e) {
  return e.what();
}

std::string ErrorOfText(std::string_view text, const NpyVersion& version = {}) {
  return ErrorIn(NpyOf(text, "", version));
}

std::string ErrorOfType(std::string_view descr) { return ErrorOfText(NpyText(descr, "()")); }
std::string ErrorOfShape(std::string_view shape) { return ErrorOfText(NpyText("'<f4'", shape)); }

// The one tensor of a file.
Tensor TensorIn(const std::string& file) {
  const Checkpoint checkpoint = ReadCheckpoint(Source{
      .file = std::make_shared<const MemorySource>(file), .folder = nullptr, .file_name = ""});
  return std::get<Tensor>(checkpoint.root.members.at(0).content);
}

std::string BytesOf(std::string_view descr, std::string_view shape, std::string_view data) {
  return ReadString(TensorIn(Npy(descr, shape, data)).data);
}

std::string ErrorOfFile(const std::string& file) {
  return ErrorOf(Source{
      .file = std::make_shared<const MemorySource>(file), .folder = nullptr, .file_name = ""});
}

TEST(NpyHeader, HasTypeOrderShapeAndOffsetOfTheElements) {
  const npy::ArrayHeader header =
      HeaderOf("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }    \n");
  EXPECT_EQ(header.type.dtype, Dtype::kFloat32);
  EXPECT_EQ(header.descr, "\"<f4\"");
  EXPECT_TRUE(header.is_fortran);
  EXPECT_EQ(header.shape, (Shape{2, 3}));
  EXPECT_EQ(header.data_offset, 10U + 63U);
}

TEST(NpyHeader, MayHaveItsKeysInAnyOrder) {
  const npy::ArrayHeader header = HeaderOf("{'shape':(7,),'fortran_order':False,'descr':'|u1'}");
  EXPECT_EQ(header.type.dtype, Dtype::kUint8);
  EXPECT_EQ(header.shape, (Shape{7}));
}

TEST(NpyHeader, MayHaveDoubleQuotesAndMarksOfUnicode) {
  EXPECT_EQ(HeaderOf(R"({"descr": u"<f4", U'fortran_order': False, "shape": ()})").descr,
            "\"<f4\"");
}

TEST(NpyHeader, MayHaveWhiteSpaceAnywhere) {
  EXPECT_EQ(HeaderOf("\n\t {\n'descr'\f: '<f4'\r,\n 'fortran_order' :False,'shape':( 2 ,\n3 ) } \n")
                .shape,
            (Shape{2, 3}));
}

TEST(NpyHeader, OfVersion2HasALongerLength) {
  const npy::ArrayHeader header = HeaderOf(NpyText("'<f4'", "(1,)"), {2, 0});
  EXPECT_EQ(header.data_offset, 12 + NpyText("'<f4'", "(1,)").size());
}

TEST(NpyHeader, BeyondWhatNumpyReadsByDefaultIsRead) {
  const std::string text = NpyText("'<f4'", "(1,)") + std::string(20'000, ' ');
  EXPECT_EQ(HeaderOf(text).data_offset, 10 + text.size());
}

TEST(NpyHeader, OfMoreThanAMebibyteIsNotRead) {
  EXPECT_EQ(ErrorOfText(std::string((1U << 20U) + 1, ' '), {2, 0}),
            "header: the text has 1048577 bytes (maximum 1048576)");
}

TEST(NpyHeader, OfPython2HasLongNumbers) { EXPECT_EQ(ShapeOf("(2L, 3L)"), (Shape{2, 3})); }

TEST(NpyHeader, OfVersion3HasNoLongNumbers) {
  EXPECT_EQ(ErrorOfText(NpyText("'<f4'", "(2L,)"), {3, 0}),
            "header at byte 64: expected a comma, found 'L,), }?'");
}

TEST(NpyHeader, OfVersion1IsLatin1) {
  EXPECT_EQ(DescrOf("[('\xE9', '<f4')]"), R"([["\u00e9","<f4"]])");
}

TEST(NpyHeader, OfVersion3IsUtf8) {
  EXPECT_EQ(HeaderOf(NpyText("[('\xC3\xA9', '<f4')]", "()"), {3, 0}).descr,
            R"([["\u00e9","<f4"]])");
}

TEST(NpyHeader, OfVersion3MustBeUtf8) {
  EXPECT_EQ(ErrorOfText(NpyText("[('\xE9', '<f4')]", "()"), {3, 0}),
            "header: the text is not UTF-8");
}

TEST(NpyHeader, OfAnUnknownVersionIsRefused) {
  EXPECT_EQ(ErrorOfText("{}", {1, 1}),
            "header: unsupported version 1.1 (expected 1.0, 2.0 or 3.0)");
}

TEST(NpyHeader, MustBeThereToItsEnd) {
  EXPECT_EQ(ErrorIn("\x93NUMPY\1\0\x10\0{'descr'"s),
            "header at byte 10: the text needs 16 bytes, but only 8 are left");
}

TEST(NpyHeader, MustHaveALength) {
  EXPECT_EQ(ErrorIn("\x93NUMPY\1\0\x10"s),
            "header at byte 8: length of the text needs 2 bytes, but only 1 are left");
}

TEST(NpyHeader, MustBeginWithTheMagic) {
  EXPECT_EQ(ErrorIn("\x93NUMPX\1\0"s), "bad magic of an .npy file");
}

TEST(NpyHeader, MustBeADict) {
  EXPECT_EQ(ErrorOfText("[1]"), "header at byte 10: expected a {, found '[1]'");
}

TEST(NpyHeader, MustHaveAllKeys) {
  EXPECT_EQ(ErrorOfText("{'descr': '<f4', 'shape': ()}"),
            "header: the key 'fortran_order' is missing");
}

TEST(NpyHeader, MustHaveNoOtherKey) {
  EXPECT_EQ(ErrorOfText("{'x': 1}"), "header: unexpected key 'x'");
}

TEST(NpyHeader, MustHaveNoKeyTwice) {
  EXPECT_EQ(ErrorOfText("{'shape': (), 'shape': ()}"), "header: duplicate key 'shape'");
}

TEST(NpyHeader, MustEndWithTheDict) {
  EXPECT_EQ(ErrorOfText(NpyText("'<f4'", "()") + "# c"),
            "header at byte 66: expected the end of the header, found '# c'");
}

TEST(NpyHeader, ThatIsCutIsRefused) {
  EXPECT_EQ(ErrorOfText("{'descr': '<f4', "),
            "header: unexpected end at byte 27 (expected a text)");
}

TEST(NpyHeader, HasAnOrderThatIsTrueOrFalse) {
  EXPECT_EQ(ErrorOfText(NpyText("'<f4'", "()", "0")),
            "header at byte 44: expected True or False, found '0, 'shape': (), '");
}

TEST(NpyHeader, IsNeverEvaluated) {
  EXPECT_EQ(ErrorOfType("__import__('os')"),
            "header at byte 20: expected a type or a list of fields, found "
            "'__import__('os')'");
}

TEST(NpyHeader, MustNotHaveAnyNul) {
  EXPECT_EQ(ErrorOfType("'<f4\0'"s),
            "header at byte 20: expected a text that ends in a quote, found "
            "''<f4?', 'fortran'");
}

TEST(NpyHeader, MayHaveEscapes) {
  EXPECT_EQ(DescrOf(R"([('\\\'\"\n\r\t\x41\u00e9\U0001F600', '<f4')])"),
            R"([["\\'\"\n\u000d\tA\u00e9\ud83d\ude00","<f4"]])");
}

TEST(NpyHeader, MustNotHaveOtherEscapes) {
  EXPECT_EQ(ErrorOfType(R"([('\q', '<f4')])"),
            R"(header at byte 23: expected a text of characters, found '\q', '<f4')], 'f')");
}

TEST(NpyHeader, MustNotHaveEscapesOfHalfACharacter) {
  EXPECT_EQ(ErrorOfType(R"([('\ud800', '<f4')])"),
            R"(header at byte 23: expected a text of characters, found '\ud800', '<f4')]')");
}

TEST(NpyHeader, MustNotHaveMoreBracketsThanAnyArrayNeeds) {
  std::string descr;
  for (int i = 0; i < 40; ++i) descr += "[('a', ";
  EXPECT_EQ(ErrorOfType(descr), "header at byte 239: more than 64 brackets are open");
}

TEST(NpyHeader, TakesTheMemoryOfItsTextAndType) {
  const std::string text = NpyText("[('name', '<f4')]", "(1, 2)");
  const std::string file = NpyOf(text);
  Budget budget = Budget::ForFile(file.size());
  const npy::ArrayHeader header = npy::ReadHeader(MemorySource(file), 0, file.size(), budget);
  EXPECT_EQ(budget.used(),
            text.size() + header.descr.size() + header.type.name.size() + 2 * sizeof(uint64_t));
}

TEST(NpyHeader, ThatIsCorruptTakesTheMemoryOfItsText) {
  const std::string text = "{'descr': '<f4', ";
  const std::string file = NpyOf(text);
  Budget budget = Budget::ForFile(file.size());
  EXPECT_THROW(npy::ReadHeader(MemorySource(file), 0, file.size(), budget), Error);
  EXPECT_EQ(budget.used(), text.size());
}

TEST(NpyHeader, MayLieInTheMiddleOfAFile) {
  const std::string file = "before" + Npy("'<f4'", "(3,)", "") + "behind";
  Budget budget = Budget::ForFile(file.size());
  EXPECT_EQ(npy::ReadHeader(MemorySource(file), 6, file.size() - 12, budget).shape, (Shape{3}));
}

TEST(NpyShape, OfOneElementIsEmpty) { EXPECT_EQ(ShapeOf("()"), Shape{}); }
TEST(NpyShape, MayEndInAComma) { EXPECT_EQ(ShapeOf("(2, 3,)"), (Shape{2, 3})); }
TEST(NpyShape, MayHaveNoElements) { EXPECT_EQ(ShapeOf("(2, 0)"), (Shape{2, 0})); }

TEST(NpyShape, MayHave64Dimensions) {
  std::string shape;
  for (int i = 0; i < 64; ++i) shape += "1,";
  EXPECT_EQ(ShapeOf("(" + shape + ")"), Shape(64, 1));
}

TEST(NpyShape, MustNotHave65Dimensions) {
  std::string shape;
  for (int i = 0; i < 65; ++i) shape += "1,";
  EXPECT_EQ(ErrorOfShape("(" + shape + ")"),
            "header at byte 189: there are more than 64 dimensions");
}

TEST(NpyShape, InParenthesesIsANumber) {
  EXPECT_EQ(ErrorOfShape("(2)"), "header at byte 62: expected a comma, found '), }?'");
}

TEST(NpyShape, MustNotBeAList) {
  EXPECT_EQ(ErrorOfShape("[2]"), "header at byte 60: expected a (, found '[2], }?'");
}

TEST(NpyShape, MustNotBeNegative) {
  EXPECT_EQ(ErrorOfShape("(-1,)"),
            "header at byte 61: expected a whole number below 2^63, found '-1,), }?'");
}

TEST(NpyShape, MustNotBeTrue) {
  EXPECT_EQ(ErrorOfShape("(True,)"),
            "header at byte 61: expected a whole number below 2^63, found 'True,), }?'");
}

TEST(NpyShape, MustNotHaveAFraction) {
  EXPECT_EQ(ErrorOfShape("(2.0,)"), "header at byte 62: expected a comma, found '.0,), }?'");
}

TEST(NpyShape, MustNotBeOctal) {
  EXPECT_EQ(ErrorOfShape("(010,)"),
            "header at byte 61: expected a whole number below 2^63, found '010,), }?'");
}

TEST(NpyShape, MustBeBelow2ToThe63) {
  EXPECT_EQ(ErrorOfShape("(9223372036854775808,)"),
            "header at byte 61: expected a whole number below 2^63, found "
            "'9223372036854775'");
}

struct NamedType {
  const char* descr;
  Dtype dtype;
  uint64_t item_size;
};

class NpyNumbers : public testing::TestWithParam<NamedType> {};

TEST_P(NpyNumbers, HaveTheTypeOfPytorch) {
  const npy::Type type = TypeOf(GetParam().descr);
  EXPECT_EQ(type.dtype, GetParam().dtype);
  EXPECT_EQ(type.item_size, GetParam().item_size);
  EXPECT_EQ("'" + type.name + "'", GetParam().descr);
}

INSTANTIATE_TEST_SUITE_P(
    All, NpyNumbers,
    testing::Values(
        NamedType{"'|b1'", Dtype::kBool, 1}, NamedType{"'|i1'", Dtype::kInt8, 1},
        NamedType{"'|u1'", Dtype::kUint8, 1}, NamedType{"'<i2'", Dtype::kInt16, 2},
        NamedType{"'>u2'", Dtype::kUint16, 2}, NamedType{"'<i4'", Dtype::kInt32, 4},
        NamedType{"'<u4'", Dtype::kUint32, 4}, NamedType{"'>i8'", Dtype::kInt64, 8},
        NamedType{"'<u8'", Dtype::kUint64, 8}, NamedType{"'<f2'", Dtype::kFloat16, 2},
        NamedType{"'>f4'", Dtype::kFloat32, 4}, NamedType{"'<f8'", Dtype::kFloat64, 8},
        NamedType{"'<c8'", Dtype::kComplex64, 8}, NamedType{"'>c16'", Dtype::kComplex128, 16},
        NamedType{"'<f16'", Dtype::kOpaque, 16}, NamedType{"'>f12'", Dtype::kOpaque, 12},
        NamedType{"'<c32'", Dtype::kOpaque, 32}, NamedType{"'<c24'", Dtype::kOpaque, 24},
        NamedType{"'<f1'", Dtype::kOpaque, 1}, NamedType{"'<W4'", Dtype::kOpaque, 4},
        NamedType{"'|S5'", Dtype::kOpaque, 5}, NamedType{"'|S0'", Dtype::kOpaque, 0},
        NamedType{"'<U3'", Dtype::kOpaque, 12}, NamedType{"'>U3'", Dtype::kOpaque, 12},
        NamedType{"'|V7'", Dtype::kOpaque, 7}, NamedType{"'<M8'", Dtype::kOpaque, 8},
        NamedType{"'<M8[ns]'", Dtype::kOpaque, 8}, NamedType{"'>m8[25us]'", Dtype::kOpaque, 8},
        NamedType{"'<m8[h/4]'", Dtype::kOpaque, 8}));

TEST(NpyType, WithoutAnOrderIsLittleEndian) {
  EXPECT_EQ(TypeOf("'f4'").name, "<f4");
  EXPECT_EQ(TypeOf("'=f4'").name, "<f4");
  EXPECT_EQ(TypeOf("'|f4'").name, "<f4");
}

TEST(NpyType, OfOneByteHasNoOrder) { EXPECT_EQ(TypeOf("'<b1'").name, "|b1"); }

TEST(NpyType, OfBytesHasAnOldName) { EXPECT_EQ(TypeOf("'|a3'").name, "|S3"); }

TEST(NpyType, OfMlDtypesIsVoid) {
  EXPECT_EQ(TypeOf("'<V2'").name, "|V2");
  EXPECT_FALSE(TypeOf("'>V2'").is_big_endian);
}

TEST(NpyType, ThatIsInvalidIsRefused) {
  EXPECT_EQ(ErrorOfType("'<i3'"), "header: unsupported numpy dtype '<i3'");
  EXPECT_EQ(ErrorOfType("''"), "header: unsupported numpy dtype ''");
  EXPECT_EQ(ErrorOfType("'<U'"), "header: unsupported numpy dtype '<U'");
  EXPECT_EQ(ErrorOfType("'|S-1'"), "header: unsupported numpy dtype '|S-1'");
  EXPECT_EQ(ErrorOfType("'<f4,<i4'"), "header: unsupported numpy dtype '<f4,<i4'");
}

TEST(NpyType, OfATimeHasAUnit) {
  EXPECT_EQ(ErrorOfType("'<M8[q]'"), "header: unsupported numpy dtype '<M8[q]'");
  EXPECT_EQ(ErrorOfType("'<M8['"), "header: unsupported numpy dtype '<M8['");
  EXPECT_EQ(ErrorOfType("'<M8[s/]'"), "header: unsupported numpy dtype '<M8[s/]'");
  EXPECT_EQ(ErrorOfType("'<M8[-1s]'"), "header: unsupported numpy dtype '<M8[-1s]'");
}

TEST(NpyType, OfTextsOf2ToThe63BytesIsRefused) {
  EXPECT_EQ(ErrorOfType("'<U4611686018427387904'"),
            "header: unsupported numpy dtype '<U4611686018427387904'");
}

TEST(NpyType, MustNotBeAnArrayInAnArray) {
  EXPECT_EQ(ErrorOfType("('<f4', (2,))"),
            "header at byte 20: expected a type or a list of fields, found "
            "'('<f4', (2,)), ''");
}

TEST(NpyType, OfObjectsIsDistinguished) {
  EXPECT_TRUE(TypeOf("'|O'").has_objects);
  EXPECT_TRUE(TypeOf("'|O8'").has_objects);
  EXPECT_TRUE(TypeOf("[('a', [('b', '|O')])]").has_objects);
  EXPECT_FALSE(TypeOf("[('O', '<f4')]").has_objects);
}

TEST(NpyStructure, IsAsLongAsItsFields) {
  const npy::Type type = TypeOf(
      "[('a', '|i1'), ('', '|V7'), ('b', '<f8'), ('c', '>i2', (2, 3)), ('d', [('x', '|u1')], 4)]");
  EXPECT_EQ(type.dtype, Dtype::kOpaque);
  EXPECT_EQ(type.item_size, 1U + 7U + 8U + 12U + 4U);
  EXPECT_EQ(type.name, "|V32");
}

TEST(NpyStructure, IsWrittenAsJson) {
  EXPECT_EQ(DescrOf("[(('title', 'a'), '<f4'), ('b', '>i2', (2, 3),), ('c', '|u1', 4)]"),
            R"([[["title","a"],"<f4"],["b",">i2",[2,3]],["c","|u1",4]])");
}

TEST(NpyStructure, MayHaveNoFields) {
  EXPECT_EQ(TypeOf("[]").item_size, 0U);
  EXPECT_EQ(DescrOf("[]"), "[]");
}

TEST(NpyStructure, MayHavePaddingMoreThanOnce) {
  EXPECT_EQ(TypeOf("[('', '|V3'), ('a', '<f4'), ('', '|V1')]").item_size, 8U);
}

TEST(NpyStructure, MustNotHaveANameTwice) {
  EXPECT_EQ(ErrorOfType("[('a', '<f4'), ('a', '<f4')]"),
            "header: two fields of a structure are called 'a'");
}

TEST(NpyStructure, MustNotHaveATitleThatIsAName) {
  EXPECT_EQ(ErrorOfType("[(('a', 'b'), '<f4'), ('a', '<f4')]"),
            "header: two fields of a structure are called 'a'");
}

TEST(NpyStructure, MustNotHaveFieldsOfFourParts) {
  EXPECT_EQ(ErrorOfType("[('a', '<f4', 2, 3)]"),
            "header at byte 37: expected the end of the field, found '3)], 'fortran_or'");
}

TEST(NpyStructure, MustNotHaveElementsOf2ToThe63Bytes) {
  EXPECT_EQ(ErrorOfType("[('a', '<f8', (4294967296, 4294967296))]"),
            "header: its elements need more than 2^63 bytes");
  EXPECT_EQ(ErrorOfType("[('a', '|V9223372036854775807'), ('b', '|u1')]"),
            "header: its elements need more than 2^63 bytes");
}

TEST(NpyStructure, MustNotHaveMoreFieldsThanWeRead) {
  std::string fields;
  for (int i = 0; i < 10'001; ++i) fields += "('" + std::to_string(i) + "','|u1'),";
  EXPECT_EQ(ErrorOfText(NpyText("[" + fields + "]", "()"), {2, 0}),
            "header: has more than 10000 fields");
}

TEST(Npy, IsOneTensor) {
  const std::string file = Npy("'<i2'", "(2, 1)", "abcd");
  const Tensor tensor = TensorIn(file);
  EXPECT_EQ(tensor.dtype, Dtype::kInt16);
  EXPECT_EQ(tensor.shape, (Shape{2, 1}));
  EXPECT_EQ(ReadString(tensor.data), "abcd");
  EXPECT_TRUE(tensor.is_in_file);
  EXPECT_EQ(tensor.file_offset, file.size() - 4);
  EXPECT_EQ(tensor.annotations, (std::vector<Annotation>{{"numpy_dtype", "\"<i2\""}}));
}

TEST(Npy, IsInCOrderWhateverItWas) {
  const Tensor tensor = TensorIn(NpyOf(NpyText("'|u1'", "(2, 3)", "True"), "adbecf"));
  EXPECT_EQ(ReadString(tensor.data), "abcdef");
  EXPECT_FALSE(tensor.is_in_file);
  EXPECT_EQ(tensor.annotations,
            (std::vector<Annotation>{{"numpy_dtype", "\"|u1\""}, {"fortran_order", "true"}}));
}

TEST(Npy, OfOneDimensionIsTheSameInBothOrders) {
  const Tensor tensor = TensorIn(NpyOf(NpyText("'|u1'", "(3,)", "True"), "abc"));
  EXPECT_EQ(ReadString(tensor.data), "abc");
  EXPECT_TRUE(tensor.is_in_file);
}

TEST(Npy, IsLittleEndianWhateverItWas) {
  EXPECT_EQ(BytesOf("'>i2'", "(2,)", "abcd"), "badc");
  EXPECT_EQ(BytesOf("'>f8'", "(1,)", "abcdefgh"), "hgfedcba");
}

TEST(Npy, OfComplexNumbersIsSwappedInHalves) {
  EXPECT_EQ(BytesOf("'>c8'", "(1,)", "abcdefgh"), "dcbahgfe");
}

TEST(Npy, OfTextsIsSwappedByCharacters) {
  EXPECT_EQ(BytesOf("'>U2'", "(2,)", "abcdefghijklmnop"), "dcbahgfelkjiponm");
  EXPECT_EQ(TensorIn(Npy("'>U2'", "(1,)", "abcdefgh")).foreign_dtype, "numpy.<U2");
}

TEST(Npy, OfTimesIsSwapped) {
  EXPECT_EQ(BytesOf("'>M8[s]'", "(1,)", "abcdefgh"), "hgfedcba");
  EXPECT_EQ(TensorIn(Npy("'>m8[s]'", "(1,)", "abcdefgh")).foreign_dtype, "numpy.<m8[s]");
}

TEST(Npy, OfTextsInFortranOrderIsSwappedAndTransposed) {
  EXPECT_EQ(
      ReadString(TensorIn(NpyOf(NpyText("'>U1'", "(2, 2)", "True"), "abcdefghijklmnop")).data),
      "dcbalkjihgfeponm");
}

TEST(Npy, OfTypesWithoutAByteOrderIsUnchanged) {
  EXPECT_EQ(BytesOf("'>V2'", "(2,)", "abcd"), "abcd");
  EXPECT_EQ(BytesOf("'>f16'", "()", "abcdefghijklmnop"), "abcdefghijklmnop");
  EXPECT_EQ(TensorIn(Npy("'>f16'", "()", "abcdefghijklmnop")).foreign_dtype, "numpy.>f16");
  EXPECT_EQ(BytesOf("[('a', '>i2'), ('b', '|u1')]", "(2,)", "abcdef"), "abcdef");
}

TEST(Npy, OfStructuresInFortranOrderKeepsThemWhole) {
  EXPECT_EQ(ReadString(TensorIn(NpyOf(NpyText("'|V3'", "(2, 2)", "True"), "aaabbbcccddd")).data),
            "aaacccbbbddd");
}

TEST(Npy, OfBytesHasTheirNumberForALastDimension) {
  EXPECT_EQ(TensorIn(Npy("'|S3'", "(2,)", "abcdef")).shape, (Shape{2, 3}));
}

TEST(Npy, OfNoBytesIsEmpty) {
  const Tensor tensor = TensorIn(Npy("'|V0'", "(99999999999,)", ""));
  EXPECT_EQ(tensor.shape, (Shape{99'999'999'999, 0}));
  EXPECT_EQ(tensor.data.length, 0U);
}

TEST(Npy, OfBigEndianTextsWithoutCharactersIsEmpty) { EXPECT_EQ(BytesOf("'>U0'", "(3,)", ""), ""); }

TEST(Npy, WithTrailingBytesIsReadAndReported) {
  const Tensor tensor = TensorIn(Npy("'|u1'", "(2,)", "abcde"));
  EXPECT_EQ(ReadString(tensor.data), "ab");
  EXPECT_EQ(tensor.annotations,
            (std::vector<Annotation>{{"numpy_dtype", "\"|u1\""}, {"trailing_bytes", "3"}}));
}

TEST(Npy, WithFewerBytesIsRefused) {
  EXPECT_EQ(ErrorOfFile(Npy("'<f4'", "(2,)", "1234567")),
            "memory: has 7 bytes, but its 2 elements need 8");
}

TEST(Npy, OfObjectsIsAPickle) {
  EXPECT_EQ(ErrorOfFile(Npy("'|O'", "(2,)", "pickle")), "memory: PUT at byte 0: unterminated line");
}

TEST(Npy, OfMoreThan2ToThe63BytesIsRefused) {
  EXPECT_EQ(ErrorOfFile(Npy("'<f4'", "(4611686018427387904,)", "")),
            "memory: its shape needs more than 2^63 bytes");
  EXPECT_EQ(ErrorOfFile(Npy("'<f4'", "(4294967296, 4294967296)", "")),
            "memory: its shape has more than 2^64 elements");
}

TEST(Npy, OfBytesHas63DimensionsAtMost) {
  std::string shape;
  for (int i = 0; i < 64; ++i) shape += "1,";
  EXPECT_EQ(ErrorOfFile(Npy("'|S1'", "(" + shape + ")", "a")),
            "memory: has 65 dimensions, the bytes of an element included (maximum 64)");
}

Checkpoint CheckpointIn(const std::string& file) {
  return ReadCheckpoint(Source{
      .file = std::make_shared<const MemorySource>(file), .folder = nullptr, .file_name = ""});
}

std::string BytesAt(const Checkpoint& checkpoint, size_t index) {
  return ReadString(std::get<Tensor>(checkpoint.root.members.at(index).content).data);
}

TEST(NpyFile, OfSeveralArraysIsAList) {
  const std::string file = Npy("'|u1'", "(2,)", "ab") + Npy("'<u2'", "()", "cd") +
                           Npy("'|u1'", "(0,)", "") + Npy("'|u1'", "(1, 3)", "efg");
  const Checkpoint checkpoint = CheckpointIn(file);
  EXPECT_EQ(checkpoint.root.python_type, "list");
  ASSERT_EQ(checkpoint.root.members.size(), 4U);
  EXPECT_EQ(checkpoint.root.members[3].key.text, "3");
  EXPECT_EQ(BytesAt(checkpoint, 0), "ab");
  EXPECT_EQ(BytesAt(checkpoint, 1), "cd");
  EXPECT_EQ(BytesAt(checkpoint, 2), "");
  EXPECT_EQ(BytesAt(checkpoint, 3), "efg");
  EXPECT_EQ(std::get<Tensor>(checkpoint.root.members[0].content).annotations,
            (std::vector<Annotation>{{"numpy_dtype", "\"|u1\""}}));
  EXPECT_EQ(std::get<Tensor>(checkpoint.root.members[3].content).file_offset, file.size() - 3);
}

TEST(NpyFile, RecordsTrailingBytes) {
  const std::string array = Npy("'|u1'", "(2,)", "ab");
  const Checkpoint checkpoint = CheckpointIn(array + array + "\x93NUMP");
  ASSERT_EQ(checkpoint.root.members.size(), 2U);
  EXPECT_EQ(std::get<Tensor>(checkpoint.root.members[1].content).annotations,
            (std::vector<Annotation>{{"numpy_dtype", "\"|u1\""}, {"trailing_bytes", "5"}}));
}

TEST(NpyFile, WhoseSecondArrayIsCutKeepsTheFirst) {
  const std::string array = Npy("'|u1'", "(2,)", "ab");
  const Checkpoint checkpoint = CheckpointIn(array + array.substr(0, array.size() - 1));
  ASSERT_EQ(checkpoint.root.members.size(), 2U);
  EXPECT_EQ(BytesAt(checkpoint, 0), "ab");
  EXPECT_EQ(MessageOf(std::get<Tensor>(checkpoint.root.members[1].content).error),
            "has 1 bytes, but its 2 elements need 2");
  ASSERT_EQ(checkpoint.warnings.size(), 1U);
}

TEST(NpyFile, WhoseSecondHeaderIsCorruptKeepsTheFirst) {
  const std::string array = Npy("'|u1'", "(2,)", "ab");
  const Checkpoint checkpoint = CheckpointIn(array + NpyOf("{}", "") + array);
  ASSERT_EQ(checkpoint.root.members.size(), 2U);
  EXPECT_EQ(BytesAt(checkpoint, 0), "ab");
  EXPECT_TRUE(std::holds_alternative<Value>(checkpoint.root.members[1].content));
}

// As Equinox's documentation has it: hyper-parameters, then the leaves.
TEST(NpyFile, MayBeginWithALineOfJson) {
  const std::string array = Npy("'|u1'", "(2,)", "ab");
  const Checkpoint checkpoint = CheckpointIn("{\"width\": 4, \"scale\": NaN}\n" + array);
  ASSERT_EQ(checkpoint.root.members.size(), 2U);
  EXPECT_EQ(checkpoint.root.members[0].key.text, "hyperparameters");
  EXPECT_EQ(std::get<Value>(checkpoint.root.members[0].content).json,
            R"({"width":4,"scale":"NaN"})");
  EXPECT_EQ(checkpoint.root.members[1].key.text, "0");
  EXPECT_EQ(BytesAt(checkpoint, 1), "ab");
}

TEST(NpyFile, MustBeginWithALineThatIsJson) {
  EXPECT_EQ(ErrorOfFile("{width: 4}\n" + Npy("'|u1'", "(2,)", "ab")),
            "memory: first line: invalid JSON at byte 1, near 'w'");
}

TEST(NpyFile, OfManyArraysIsBounded) {
  std::string file;
  for (int i = 0; i < 10'000; ++i) file += Npy("'|u1'", "(0,)", "");
  EXPECT_EQ(CheckpointIn(file).root.members.size(), 10'000U);
}

}  // namespace
}  // namespace ckptfs
