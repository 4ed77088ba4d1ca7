#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/detect.h"
#include "parser/io/simple_sources.h"
#include "tests/support/encrypter.h"
#include "tests/support/pickle_writer.h"
#include "tests/support/reading.h"
#include "tests/support/sources.h"
#include "tests/support/tensorizer_writer.h"

namespace ckptfs {
namespace {

using std::string_literals::operator""s;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Key;
using testing::Not;
using testing::Pair;

using Stored = TensorizerWriter::Tensor;
using Shape = std::vector<uint64_t>;

// The tensor of four floats from 1 to 4 that the documentation of the format has as its example.
const std::string kFloats = FromHex("0000803f000000400000404000008040");
const std::string kKey =
    FromHex("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f");
const std::string kNonce = FromHex("a0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7");
const std::string kEncrypted = FromHex("36953725 8266e7ee 772b7b0b f6a8f686");
const std::string kTag = FromHex("a3361f25fbad35fa65eea06dc9a9f5ee");

Checkpoint Read(const TensorizerWriter& file, const ReadOptions& options = {}) {
  return ReadCheckpoint(file.Source(), options);
}

// A file of one tensor, and that tensor.
Tensor ReadOne(const Stored& stored, uint32_t version = 1) {
  const Checkpoint checkpoint = Read(TensorizerWriter(version).Add(stored));
  return std::get<Tensor>(checkpoint.root.members.at(0).content);
}

std::string ErrorOf(const std::string& file) {
  return ErrorOf(Source{.file = std::make_shared<MemorySource>(file), .file_name = ""});
}
std::string ErrorOf(const TensorizerWriter& file) { return ErrorOf(file.Finish()); }
std::string ErrorOf(const Stored& stored) { return ErrorOf(TensorizerWriter().Add(stored)); }

std::string Patched(std::string file, size_t offset, const std::string& bytes) {
  return file.replace(offset, bytes.size(), bytes);
}

Stored Named(const std::string& name) { return {.name = name, .shape = {4}, .data = kFloats}; }

// A file of a good tensor, "good", and of another, which is returned. What is wrong with that is
// its error and in the warning.
Tensor ReadCorrupt(const std::string& file) {
  const Checkpoint checkpoint = ReadCheckpoint(std::make_shared<MemorySource>(file));
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "good").data), kFloats);
  const Tensor& tensor = TensorAt(checkpoint, "w");
  EXPECT_THAT(checkpoint.warnings,
              ElementsAre("tensor 'w': " + std::string(MessageOf(tensor.error)) +
                          ": reading it will fail"));
  return tensor;
}

TensorizerWriter WithGood(const Stored& stored, uint32_t version = 1) {
  TensorizerWriter writer(version);
  const Stored good = {.name = "good", .shape = {4}, .data = kFloats};
  return writer.Add(version == 3 ? Stored{.name = "good", .data = ""} : good).Add(stored);
}

std::string DamageIn(const std::string& file) {
  return std::string(MessageOf(ReadCorrupt(file).error));
}
std::string DamageOf(const Stored& stored) { return DamageIn(WithGood(stored).Finish()); }
std::string DamageOf(const Stored& stored, const Stored& in_index) {
  TensorizerWriter writer;
  return DamageIn(writer.Add(Named("good")).Add(stored, in_index).Finish());
}

TEST(Tensorizer, FindsTheBytesOfATensor) {
  const Checkpoint checkpoint =
      Read(TensorizerWriter()
               .Add(Named("a"))
               .Add({.name = "b", .dtype = "|u1", .shape = {3, 2}, .data = "012345"}));
  EXPECT_EQ(checkpoint.format, "tensorizer");
  EXPECT_THAT(checkpoint.warnings, IsEmpty());
  const Tensor& b = TensorAt(checkpoint, "b");
  EXPECT_EQ(b.dtype, Dtype::kUint8);
  EXPECT_EQ(b.shape, (Shape{3, 2}));
  EXPECT_EQ(ReadString(b.data), "012345");
  EXPECT_TRUE(b.is_in_file);
  EXPECT_EQ(b.file_offset, b.data.offset);
}

TEST(Tensorizer, ReadsAnnotationsOfTheFile) {
  const Checkpoint checkpoint = Read(TensorizerWriter(4).Add(Named("a")).AddRoom(10));
  EXPECT_THAT(checkpoint.annotations,
              ElementsAre(Pair("data_version", "4"), Pair("feature_flags", "0"),
                          Pair("tensor_count", "1"), Pair("total_data_bytes", "16"),
                          Pair("encrypted", "false"), Pair("index_bytes", "47")));
}

TEST(Tensorizer, AnnotatesAParameterWithItsModule) {
  EXPECT_THAT(ReadOne({.kind = 0, .module = 7}).annotations,
              ElementsAre(Pair("kind", "\"parameter\""), Pair("module_index", "7")));
}

TEST(Tensorizer, AnnotatesABuffer) {
  EXPECT_THAT(ReadOne({.kind = 1}).annotations, Contains(Pair("kind", "\"buffer\"")));
}

TEST(Tensorizer, AnnotatesNoModuleOfAStateDict) {
  EXPECT_THAT(ReadOne({}).annotations, ElementsAre(Pair("kind", "\"state_dict\"")));
}

TEST(Tensorizer, ReadsAScalar) {
  const Tensor tensor = ReadOne({.dtype = "<i8", .shape = {}, .data = "01234567"});
  EXPECT_EQ(tensor.dtype, Dtype::kInt64);
  EXPECT_EQ(tensor.shape, Shape{});
}

TEST(Tensorizer, ReadsATensorWithoutElements) {
  const Tensor tensor = ReadOne({.shape = {3, 0}, .data = ""});
  EXPECT_EQ(tensor.shape, (Shape{3, 0}));
  EXPECT_EQ(tensor.data.length, 0U);
  EXPECT_THAT(tensor.annotations, Not(Contains(Key("meta"))));
}

TEST(Tensorizer, IgnoresBytesAfterTheLastTensor) {
  EXPECT_EQ(ErrorOf(TensorizerWriter().Add({}).Finish() + "more"), "no error");
}

TEST(Tensorizer, IsNoZipEvenIfItEndsAsOne) {
  const std::string zip = "PK\5\6" + std::string(18, '\0');
  const auto file = std::make_shared<MemorySource>(TensorizerWriter().Add({}).Finish() + zip);
  EXPECT_EQ(ReadCheckpoint(file).format, "tensorizer");
}

TEST(Tensorizer, NeedsNoEndMarker) {
  const std::string file = TensorizerWriter().Add({}).Finish();
  EXPECT_EQ(ErrorOf(file.substr(0, file.size() - 8)), "no error");
}

// Hashes.

// A tensor that tensorizer wrote, with its hashes.
const Stored kExample = {
    .name = "fc.weight",
    .data = kFloats,
    .kind = 0,
    .module = 1,
    .hashes = {{0, FromHex("35721fa2")},
               {1, FromHex("fb67afcb25a0b196836d2859f8346177727ddcb5a6dbcb8fa6992291"
                           "04d0b747")}}};

class TensorizerHashes : public testing::Test {
 protected:
  std::string ReadAndReport(const TensorizerWriter& file, ReadOptions options = {}) {
    const auto report = [this](std::string_view what, Verdict verdict, std::string_view) {
      reports_.emplace_back(what, verdict);
    };
    options.verification =
        std::make_shared<Verification>(Verification{.is_enforced = false, .report = report});
    const Checkpoint checkpoint = Read(file, options);
    const Tensor& tensor = TensorAt(checkpoint, "fc.weight");
    EXPECT_EQ(ReadString(tensor.data), kFloats);
    is_in_file_ = tensor.is_in_file && tensor.file_offset == tensor.data.offset;
    return ReadString(tensor.data);
  }

  std::vector<std::pair<std::string, Verdict>> reports_;
  bool is_in_file_ = false;
};

TEST_F(TensorizerHashes, AreThoseOfTensorizer) {
  ReadAndReport(TensorizerWriter().Add(kExample));
  EXPECT_THAT(reports_, ElementsAre(Pair("memory: tensor 'fc.weight'", Verdict::kRight)));
  EXPECT_TRUE(is_in_file_);
}

TEST_F(TensorizerHashes, AreOfTheHeaderToo) {
  Stored other = kExample;
  other.module = 2;
  ReadAndReport(TensorizerWriter().Add(other));
  EXPECT_THAT(reports_, ElementsAre(Pair("memory: tensor 'fc.weight'", Verdict::kWrong)));
}

TEST_F(TensorizerHashes, AreOfWhatWasEncryptedAndNotOfHowItWas) {
  Stored encrypted = kExample;
  encrypted.data = kEncrypted;
  encrypted.hashes = {{1, FromHex("8fa7fa5de04dbd8b1772e263b00d0b6550996ec6402991ad8976244"
                                  "26b91bf77")}};
  encrypted.encryption = EncryptionSection({{2, ChunksRecord(2 << 20, kNonce, kTag)}});
  const auto ask = [](bool) {
    return std::make_shared<Secret>(
        Secret{Secret::Kind::kKey, SecretBytes(std::as_bytes(std::span(kKey))), "key_file k"});
  };
  ReadAndReport(TensorizerWriter(3).Add(encrypted), {.ask_secret = ask});
  EXPECT_THAT(reports_, ElementsAre(Pair("memory: tensor 'fc.weight'", Verdict::kRight)));
}

TEST(Tensorizer, AnnotatesHashes) {
  EXPECT_THAT(
      ReadOne(kExample).annotations,
      Contains(Pair("hashes", R"({"crc32":"a21f7235","sha256":"fb67afcb25a0b196836d2859f834617772)"
                              R"(7ddcb5a6dbcb8fa699229104d0b747"})")));
}

TEST(Tensorizer, OmitsHashesThatAreMissing) {
  EXPECT_THAT(ReadOne({}).annotations, Not(Contains(Key("hashes"))));
}

TEST(Tensorizer, AHashThatIsTooShortCostsItsTensor) {
  EXPECT_EQ(DamageOf({.hashes = {{0, "123"}}}), "a hash of type 0 has 3 bytes, but needs 4");
}

TEST(Tensorizer, TwoHashesOfOneTypeCostTheirTensor) {
  EXPECT_EQ(DamageOf({.hashes = {{0, "1234"}, {0, "1234"}}}), "has two hashes of type 0");
}

TEST(Tensorizer, AHashOfAnUnknownTypeCostsItsTensor) {
  EXPECT_EQ(DamageOf({.hashes = {{2, "1234"}}}), "has a hash of the unknown type 2");
}

TEST(Tensorizer, AHashThatReachesBeyondItsSectionCostsItsTensor) {
  const TensorizerWriter writer = WithGood({.hashes = {{0, "1234"}}});
  const size_t count = writer.header_offset(1) + 29;
  EXPECT_EQ(DamageIn(Patched(writer.Finish(), count, "\2")),
            "hashes at byte 243: type of a hash needs 1 bytes, but only 0 are left");
}

TEST(Tensorizer, BytesBehindTheHashesCostTheirTensor) {
  const TensorizerWriter writer = WithGood({.hashes = {{0, "1234"}}});
  const size_t count = writer.header_offset(1) + 29;
  EXPECT_EQ(DamageIn(Patched(writer.Finish(), count, "\0"s)), "has 6 extra bytes after its hashes");
}

// Types.

TEST(Tensorizer, ReadsBooleans) {
  EXPECT_EQ(ReadOne({.dtype = "|b1", .shape = {2}, .data = "\1\0"s}).dtype, Dtype::kBool);
}

TEST(Tensorizer, ReadsComplexNumbers) {
  EXPECT_EQ(ReadOne({.dtype = "<c16", .shape = {1}}).dtype, Dtype::kComplex128);
}

TEST(Tensorizer, ReadsTypesThatNumpyDoesNotHave) {
  const Tensor tensor =
      ReadOne({.dtype = "<V2\0torch.bfloat16"s, .shape = {3}, .data = "012345"}, 2);
  EXPECT_EQ(tensor.dtype, Dtype::kBfloat16);
  EXPECT_EQ(tensor.shape, (Shape{3}));
  EXPECT_EQ(tensor.foreign_dtype, "");
}

TEST(Tensorizer, CountsPairsOfFourBitsAsTorchDoes) {
  const Tensor tensor =
      ReadOne({.dtype = "|V1\0torch.float4_e2m1fn_x2"s, .shape = {3}, .data = "012"}, 2);
  EXPECT_EQ(tensor.dtype, Dtype::kFloat4E2m1fnX2);
  EXPECT_EQ(tensor.shape, (Shape{3}));
}

TEST(Tensorizer, ShowsATypeThatItDoesNotKnowAsBytes) {
  const Tensor tensor = ReadOne({.dtype = "<V2\0torch.new"s, .shape = {3, 1}, .data = "012345"}, 2);
  EXPECT_EQ(tensor.dtype, Dtype::kOpaque);
  EXPECT_EQ(tensor.foreign_dtype, "torch.new");
  EXPECT_EQ(tensor.shape, (Shape{6}));
  EXPECT_THAT(tensor.annotations, Contains(Pair("stored_dtype", R"("<V2\u0000torch.new")")));
  EXPECT_THAT(tensor.annotations, Contains(Pair("stored_shape", "[3,1]")));
}

TEST(Tensorizer, DoesNotTakeAKnownNameForATypeOfAnotherSize) {
  const Tensor tensor = ReadOne({.dtype = "<V4\0torch.bfloat16"s, .shape = {1}, .data = "0123"}, 2);
  EXPECT_EQ(tensor.dtype, Dtype::kOpaque);
  EXPECT_EQ(tensor.foreign_dtype, "<V4\0torch.bfloat16"s);
}

TEST(Tensorizer, ShowsNumbersOfTheOtherByteOrderAsBytes) {
  const Tensor tensor = ReadOne({.dtype = ">f4"});
  EXPECT_EQ(tensor.dtype, Dtype::kOpaque);
  EXPECT_EQ(tensor.foreign_dtype, ">f4");
  EXPECT_EQ(ReadString(tensor.data), "0123456789abcdef");
}

TEST(Tensorizer, ShowsTextsAndDatesOfNumpyAsBytes) {
  EXPECT_EQ(ReadOne({.dtype = "<U2", .shape = {2}}).foreign_dtype, "<U2");
  EXPECT_EQ(ReadOne({.dtype = "<M8[D]", .shape = {2}}).foreign_dtype, "<M8[D]");
}

TEST(Tensorizer, ShowsAnInvalidTypeAsBytes) {
  EXPECT_EQ(ReadOne({.dtype = "", .shape = {9}}).shape, (Shape{16}));
  EXPECT_EQ(ReadOne({.dtype = "<f99999999999"}).shape, (Shape{16}));
  EXPECT_EQ(ReadOne({.dtype = "<V2\0torch.bfloat16\0"s}).shape, (Shape{16}));
}

TEST(Tensorizer, AnArrayOfObjectsCannotBeRead) {
  EXPECT_EQ(DamageOf({.dtype = "|O8", .shape = {2}}),
            "is an array of Python objects, whose bytes are addresses");
}

TEST(Tensorizer, ALengthThatIsNotThatOfTheShapeCostsItsTensor) {
  const Tensor tensor = ReadCorrupt(WithGood({.shape = {5}}).Finish());
  EXPECT_EQ(MessageOf(tensor.error), "size mismatch (found 16 bytes, dtype and shape need 20)");
  EXPECT_EQ(tensor.data.length, 20U);
}

TEST(Tensorizer, ALengthThatIsNotThatOfAForeignTypeCostsItsTensor) {
  EXPECT_EQ(DamageOf({.dtype = "<U3", .shape = {2}}),
            "size mismatch (found 16 bytes, dtype and shape need 24)");
}

// Tensors without data.

TEST(Tensorizer, ShowsATensorWithoutDataAsZeros) {
  const Tensor tensor = ReadOne({.shape = {2, 3}, .data = ""}, 4);
  EXPECT_EQ(tensor.shape, (Shape{2, 3}));
  EXPECT_EQ(ReadString(tensor.data), std::string(24, '\0'));
  EXPECT_TRUE(tensor.data.source->is_hole());
  EXPECT_FALSE(tensor.is_in_file);
  EXPECT_THAT(tensor.annotations, Contains(Pair("meta", "true")));
}

TEST(Tensorizer, ShowsATensorWithoutDataOfAForeignType) {
  const Tensor tensor = ReadOne({.dtype = "|V1\0torch.int4"s, .shape = {5}, .data = ""}, 4);
  EXPECT_EQ(tensor.shape, (Shape{5}));
  EXPECT_EQ(ReadString(tensor.data), std::string(5, '\0'));
}

TEST(Tensorizer, ReadsATensorOfAForeignTypeWithoutElements) {
  EXPECT_EQ(ReadOne({.dtype = "<V2\0torch.bfloat16"s, .shape = {0}, .data = ""}, 2).data.length,
            0U);
  EXPECT_EQ(ReadOne({.dtype = "?", .shape = {0}, .data = ""}).data.length, 0U);
}

TEST(Tensorizer, DoesNotGuessHowManyZerosAnUnknownTypeHas) {
  EXPECT_EQ(DamageOf({.dtype = "?", .shape = {2}, .data = ""}),
            "has no data, and its dtype '?' has no known size");
}

// Returns the error of the tensor 'w', whose size is impossible for a file.
std::string LossOf(const Stored& stored) {
  const Checkpoint checkpoint = Read(WithGood(stored));
  EXPECT_TRUE(ValueAt(checkpoint, "w").error);
  return checkpoint.warnings.at(0);
}

TEST(Tensorizer, ShowsNoExabytesOfZeros) {
  EXPECT_EQ(LossOf({.dtype = "|u1", .shape = {1U << 31U, 1U << 31U}, .data = ""}),
            "tensor 'w': is 4611686018427387904 zeros without data (maximum "
            "17592186044416): reading it will fail");
}

TEST(Tensorizer, AShapeThatOverflowsCostsItsTensor) {
  EXPECT_EQ(LossOf({.shape = {1U << 31U, 1U << 31U, 4}, .data = ""}),
            "tensor 'w': its shape needs more than 2^63 bytes: reading it will fail");
  EXPECT_EQ(LossOf({.dtype = ">f4", .shape = {1U << 31U, 1U << 31U, 4}, .data = ""}),
            "tensor 'w': its shape needs more than 2^64 bytes: reading it will fail");
}

// Names.

TEST(Tensorizer, DoesNotSplitAName) {
  const Checkpoint checkpoint = Read(TensorizerWriter().Add(Named("a.b/../c\0\n"s)));
  const ckptfs::Key& key = checkpoint.root.members.at(0).key;
  EXPECT_EQ(key.text, "a.b/../c\0\n"s);
  EXPECT_EQ(key.kind, ckptfs::Key::Kind::kText);
}

TEST(Tensorizer, MakesGroupsOfAListOfKeys) {
  const Checkpoint checkpoint = Read(TensorizerWriter()
                                         .Add(Named("\x1E[\"m\",\"l\",1,\"w\"]"))
                                         .Add(Named("\x1E[ \"m\" ,\"l\",0\t, \"w\"]"))
                                         .Add(Named("lm_head")));
  EXPECT_EQ(TensorAt(checkpoint, "m/l/0/w").shape, (Shape{4}));
  const auto& list = *std::get<std::unique_ptr<Group>>(At(checkpoint.root, "m/l").content);
  EXPECT_EQ(list.python_type, "list");
  EXPECT_EQ(list.members.at(0).key.text, "0");
  EXPECT_EQ(list.members.at(1).key.kind, ckptfs::Key::Kind::kNumber);
  EXPECT_EQ(checkpoint.root.python_type, "");
  EXPECT_EQ(checkpoint.root.members.at(1).key.text, "lm_head");
}

TEST(Tensorizer, ReadsAListAtTheRoot) {
  TensorizerWriter writer;
  for (int i = 10; i >= 0; --i) writer.Add(Named("\x1E[" + std::to_string(i) + "]"));
  const Checkpoint checkpoint = Read(writer);
  EXPECT_EQ(checkpoint.root.python_type, "list");
  EXPECT_EQ(checkpoint.root.members.at(2).key.text, "2");
  EXPECT_EQ(checkpoint.root.members.at(10).key.text, "10");
}

TEST(Tensorizer, LeavesNumbersThatAreNoListInTheirOrder) {
  const Checkpoint checkpoint =
      Read(TensorizerWriter().Add(Named("\x1E[2]")).Add(Named("\x1E[0]")));
  EXPECT_EQ(checkpoint.root.python_type, "");
  EXPECT_EQ(checkpoint.root.members.at(0).key.text, "2");
}

// The only key of a name.
std::string KeyOf(const std::string& name) {
  return Read(TensorizerWriter().Add(Named(name))).root.members.at(0).key.text;
}

TEST(Tensorizer, ReadsEscapesInNames) {
  EXPECT_EQ(KeyOf("\x1E"
                  R"(["\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00"])"),
            "\"\\/\b\f\n\r\t\xC3\xA9\xF0\x9F\x98\x80");
}

TEST(Tensorizer, ReadsLoneSurrogatesInNames) {
  EXPECT_EQ(KeyOf("\x1E[\"\\uD800x\\uDC00\"]"), "\xED\xA0\x80x\xED\xB0\x80");
  EXPECT_EQ(KeyOf("\x1E[\"\\ud83d\\u0041\"]"),
            "\xED\xA0\xBD"
            "A");
  EXPECT_EQ(KeyOf("\x1E[\"\xED\xA0\xBD\xED\xB8\x80\"]"), "\xED\xA0\xBD\xED\xB8\x80");
}

TEST(Tensorizer, ReadsEmptyKeys) { EXPECT_EQ(KeyOf("\x1E[\"\"]"), ""); }

TEST(Tensorizer, ReadsLargeNumbersInNames) {
  EXPECT_EQ(KeyOf("\x1E[9223372036854775807]"), "9223372036854775807");
}

std::string NameErrorOf(const std::string& name) { return ErrorOf(Named(name)); }

TEST(Tensorizer, RefusesANameThatIsNoUtf8) {
  EXPECT_EQ(NameErrorOf("a\xFF"), "memory: name 'a?': it is not UTF-8");
  EXPECT_EQ(NameErrorOf("\xED\xA0\x80"), "memory: name '?\?\?': it is not UTF-8");
}

// tensorizer 2.12 rejects each of them, too.
TEST(Tensorizer, RefusesAListOfKeysThatIsNone) {
  for (const std::string list :
       {"", "[]", "[\"a\"", "\"a\"]", "[0] ", " [0]", "[0]]", "[0][1]", "0]", "[", "]", "{}",
        "{\"a\":0}", "[0,]", "[,0]", "[0 1]", "[0]x]"}) {
    EXPECT_THAT(NameErrorOf("\x1E" + list), testing::StartsWith("memory: name '")) << list;
  }
  EXPECT_EQ(NameErrorOf("\x1E[]"),
            "memory: name '?[]': it is not a list of texts and whole numbers");
  EXPECT_EQ(NameErrorOf("\x1E[0] "), "memory: name '?[0] ': it is not a list in one line");
}

TEST(Tensorizer, RefusesKeysThatAreNeitherTextsNorWholeNumbers) {
  for (const std::string list :
       {"[true]", "[null]", "[-1]", "[1e2]", "[1.0]", "[[0]]", "[[]]", "[{}]", "[{\"a\":0}]",
        "[NaN]", "[-Infinity]", "[9223372036854775808]", "[99999999999999999999]"}) {
    const std::string quoted = "memory: name '?" + list + "'";
    EXPECT_EQ(NameErrorOf("\x1E" + list), quoted + ": it is not a list of texts and whole numbers");
  }
  for (const std::string list : {"[01]", "[+1]", "[0x1]", "[1_0]", "[a]", "['a']"}) {
    EXPECT_THAT(NameErrorOf("\x1E" + list), testing::HasSubstr("invalid JSON at byte ")) << list;
  }
}

TEST(Tensorizer, RefusesTextsInNamesThatAreNoJson) {
  for (const std::string list : {"[\"\t\"]", "[\"\\x\"]", "[\"\\u12g4\"]", "[\"\xFF\"]", "[\"\\\"]",
                                 "[\"\\u12\"]", "[\"\xED\xA0\"]", "[\"\xC0\x80\"]"}) {
    EXPECT_THAT(NameErrorOf("\x1E" + list), testing::HasSubstr("JSON")) << list;
  }
  EXPECT_THAT(NameErrorOf("\x1E[\"a\",\n0]"), testing::EndsWith("it is not a list in one line"));
  EXPECT_THAT(NameErrorOf("\x1E[\"\r\"]"), testing::EndsWith("it is not a list in one line"));
}

TEST(Tensorizer, ReadsBlanksInNames) { EXPECT_EQ(KeyOf("\x1E[ \t\"a\"\t ]"), "a"); }

TEST(Tensorizer, RefusesMoreThan64Keys) {
  std::string name = "\x1E[0";
  for (int i = 1; i < 64; ++i) name += ",0";
  EXPECT_EQ(NameErrorOf(name + "]"), "no error");
  EXPECT_THAT(NameErrorOf(name + ",0]"), testing::EndsWith("it has more than 64 keys"));
}

TEST(Tensorizer, RefusesTwoTensorsOfOneName) {
  EXPECT_EQ(ErrorOf(TensorizerWriter().Add(Named("a")).Add(Named("\x1E[\"a\"]"))),
            "memory: tensor 'a': occurs twice");
}

TEST(Tensorizer, RefusesATensorInATensor) {
  const std::string inner = "\x1E[\"a\",\"b\"]";
  EXPECT_EQ(ErrorOf(TensorizerWriter().Add(Named("a")).Add(Named(inner))),
            "memory: tensor 'a': is a tensor, but other tensors are below it");
  EXPECT_EQ(ErrorOf(TensorizerWriter().Add(Named(inner)).Add(Named("a"))),
            "memory: tensor 'a': is a tensor, but other tensors are below it");
}

TEST(Tensorizer, RefusesTextsAndNumbersSideBySide) {
  EXPECT_EQ(ErrorOf(TensorizerWriter().Add(Named("a")).Add(Named("\x1E[0,\"x\"]"))),
            "memory: tensor '0.x': is in a group with both text and number keys");
}

TEST(Tensorizer, MayNotTakeMoreMemoryThanAFileOfItsSize) {
  TensorizerWriter writer;
  for (int i = 0; i < 2000; ++i) {
    std::string name = "\x1E[" + std::to_string(i);
    for (int depth = 1; depth < 64; ++depth) name += ",0";
    writer.Add({.name = name + "]", .dtype = "|u1", .shape = {1}, .data = "x"});
  }
  EXPECT_EQ(ErrorOf(writer),
            "memory: parsing needs more than 37 MiB of memory, the limit for a file of this size");
}

// The file header.

TEST(Tensorizer, RefusesVersionsThatItDoesNotKnow) {
  EXPECT_EQ(ErrorOf(TensorizerWriter(0).Add({})),
            "memory: unsupported data version 0 (supported: 1 to 5)");
  EXPECT_EQ(ErrorOf(TensorizerWriter(6).Add({})),
            "memory: unsupported data version 6 (supported: 1 to 5)");
}

TEST(Tensorizer, RefusesFlagsThatNoReleaseKnows) {
  const std::string wrong = "memory: has feature flags that no release of tensorizer knows";
  EXPECT_EQ(ErrorOf(TensorizerWriter(5, 4).Add({})), wrong);
  EXPECT_EQ(ErrorOf(Patched(TensorizerWriter(1).Add({}).Finish(), 40, "\1")), wrong);
}

TEST(Tensorizer, RefusesTagsBeforeVersionFive) {
  EXPECT_EQ(ErrorOf(TensorizerWriter(4, 2).Add({})),
            "memory: has a feature flag of data version 5, but its version is 4");
}

TEST(Tensorizer, IgnoresTheFlagOfEncryptionWhereItMeansNothing) {
  EXPECT_EQ(ErrorOf(TensorizerWriter(2, 1).Add({})), "no error");
}

TEST(Tensorizer, ReportsAnIncompleteFile) {
  EXPECT_EQ(ErrorOf(TensorizerWriter().AddRoom(1000)),
            "memory: has no tensors: it was not written to its end, or nothing was saved");
}

TEST(Tensorizer, ReportsATruncatedHeader) {
  EXPECT_EQ(ErrorOf(TensorizerWriter().Add({}).Finish().substr(0, 70)),
            "memory: file header at byte 65: length of the index needs 8 bytes, but only 5 are "
            "left");
}

TEST(Tensorizer, ReportsATruncatedIndex) {
  EXPECT_EQ(ErrorOf(TensorizerWriter().Add({}).Finish().substr(0, 80)),
            "memory: its index needs 41 bytes, but only 7 are left: the file is truncated");
}

TEST(Tensorizer, RefusesAnIndexBeyondTheLimit) {
  EXPECT_EQ(ErrorOf(Patched(TensorizerWriter().Add({}).Finish(), 65, std::string(8, '\xFF'))),
            "memory: its index has 18446744073709551615 bytes (maximum 67108864)");
}

TEST(Tensorizer, RefusesMoreTensorsThanTheIndexHasRoomFor) {
  EXPECT_EQ(ErrorOf(Patched(TensorizerWriter().Add({}).Finish(), 57, LittleEndian(2, 8))),
            "memory: has 2 tensors, but its index of 41 bytes has room for 1 at most");
}

// The index.

TEST(Tensorizer, WarnsThatTheIndexWasFull) {
  const std::string wrong = "in its index: the index was full when the others were written";
  const std::string file = TensorizerWriter().Add({}).AddRoom(100).Finish();
  EXPECT_EQ(ErrorOf(Patched(file, 57, LittleEndian(3, 8))),
            "memory: has only 1 of 3 tensors " + wrong);
}

TEST(Tensorizer, RefusesAnEmptyName) {
  EXPECT_EQ(NameErrorOf(""), "memory: index at byte 75: a name is empty");
}

TEST(Tensorizer, RefusesAnEntryThatReachesBeyondTheIndex) {
  const TensorizerWriter writer = TensorizerWriter().Add({});
  EXPECT_EQ(ErrorOf(Patched(writer.Finish(), writer.entry_offset(0), "\x40")),
            "memory: index at byte 75: name needs 64 bytes, but only 39 are left");
}

TEST(Tensorizer, RefusesAKindThatItDoesNotKnow) {
  EXPECT_EQ(ErrorOf(Stored{.kind = 3}),
            "memory: tensor 'w': is of type 3, but 0, 1 and 2 are known");
}

TEST(Tensorizer, RefusesSixtyFiveDimensions) {
  EXPECT_EQ(ErrorOf(Stored{.shape = Shape(65, 1)}),
            "memory: tensor 'w': too many dimensions (found 65, maximum 64)");
}

// Tags.

TEST(Tensorizer, ReadsDimensionsOf64Bits) {
  const Checkpoint checkpoint =
      Read(TensorizerWriter(5, 2)
               .Add(Named("a"))
               .Add({.name = "long", .dtype = "|u1", .shape = {uint64_t{1} << 32U}, .data = ""}));
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "a").data), kFloats);
  const Tensor& tensor = TensorAt(checkpoint, "long");
  EXPECT_EQ(tensor.data.length, uint64_t{1} << 32U);
  EXPECT_EQ(ReadString(*tensor.data.source, (uint64_t{1} << 32U) - 2, 2), "\0\0"s);
}

TEST(Tensorizer, RefusesATagThatItDoesNotKnow) {
  const TensorizerWriter writer = TensorizerWriter(5, 2).Add({});
  EXPECT_EQ(ErrorOf(Patched(writer.Finish(), writer.entry_offset(0), "\3")),
            "memory: index at byte 73: an entry has the tag 3, but 1 and 5 are known");
}

TEST(Tensorizer, ReadsVersionFiveWithoutTags) {
  EXPECT_EQ(ErrorOf(TensorizerWriter(5).Add({})), "no error");
}

TEST(Tensorizer, RefusesDraftsWithTagsButWithoutTheFlag) {
  std::string file = TensorizerWriter(5, 2).Add({}).Finish();
  file[9] = 0;
  EXPECT_EQ(ErrorOf(file),
            "memory: was written by an unreleased development version of tensorizer, whose index "
            "has tags but no flag for them");
}

TEST(Tensorizer, RefusesDraftsWithRelativeOffsets) {
  const std::string block = LittleEndian(45, 8) + "\1\3\1" + LittleEndian(118, 8);
  EXPECT_EQ(ErrorOf(Patched(TensorizerWriter(5).Add({}).Finish(), 65, block)),
            "memory: was written by an unreleased development version of tensorizer, whose offsets "
            "are relative");
}

TEST(Tensorizer, RefusesDraftsWithHeadersInOnePlace) {
  const TensorizerWriter writer = TensorizerWriter(5).Add({});
  EXPECT_EQ(ErrorOf(Patched(writer.Finish(), writer.offsets_in_entry(0) + 8, LittleEndian(400, 8))),
            "memory: was written by an unreleased development version of tensorizer, whose data "
            "does not follow its headers");
}

// Headers and data that are not where they should be, or differ from the index.

TEST(Tensorizer, DataThatIsCutCostsItsTensor) {
  const TensorizerWriter writer = WithGood({});
  const std::string file = writer.Finish();
  const Tensor tensor = ReadCorrupt(file.substr(0, file.size() - 9));
  EXPECT_EQ(MessageOf(tensor.error),
            "data out of range: 16 bytes at byte 245 (the file has 260): it is truncated");
  EXPECT_EQ(tensor.shape, (Shape{2, 2}));
  EXPECT_EQ(tensor.data.length, 16U);
}

TEST(Tensorizer, ReportsATruncatedTensorHeader) {
  const TensorizerWriter writer = WithGood({.data = ""});
  const std::string file = writer.Finish();
  const Tensor tensor = ReadCorrupt(file.substr(0, file.size() - 9));
  EXPECT_EQ(MessageOf(tensor.error),
            "its header ends at byte 245, but the file at byte 244: it is truncated");
  EXPECT_EQ(tensor.error->code(), EBADMSG);
}

// The tensor 'w' of a file with `bytes` in the place of its offset of the header, or of what is
// `further` behind that.
std::string DamageAt(const std::string& bytes, size_t further = 0) {
  const TensorizerWriter writer = WithGood({});
  return DamageIn(Patched(writer.Finish(), writer.offsets_in_entry(1) + further, bytes));
}

TEST(Tensorizer, OffsetsThatAreNowhereCostTheirTensor) {
  EXPECT_EQ(DamageAt(LittleEndian(100, 8)),
            "its header is at byte 100, but the index ends at byte "
            "154");
  EXPECT_EQ(DamageAt(std::string(8, '\xFF')),
            "its data is at byte 245, but its header at byte 18446744073709551615");
  EXPECT_EQ(DamageAt(std::string(8, '\xFF'), 8),
            "its header ends at byte 18446744073709551615, but the file at byte 269: it is "
            "truncated");
  EXPECT_EQ(DamageAt(std::string(8, '\xFF'), 16),
            "data out of range: 18446744073709551615 bytes at byte 245 (the file has 269): it is "
            "truncated");
}

TEST(Tensorizer, AHeaderOfAnotherLengthCostsItsTensor) {
  EXPECT_EQ(DamageAt(LittleEndian(246, 8), 8),
            "its header has 38 bytes (expected 39, up to its data)");
}

TEST(Tensorizer, AHeaderThatIsTooShortCostsItsTensor) {
  const TensorizerWriter writer = WithGood({});
  const size_t header = writer.header_offset(1);
  std::string file = Patched(writer.Finish(), header, LittleEndian(9, 8));
  file = Patched(file, writer.offsets_in_entry(1) + 8, LittleEndian(header + 9, 8));
  EXPECT_EQ(DamageIn(file),
            "its header at byte 215: number of the module needs 2 bytes, but only 1 are left");
}

TEST(Tensorizer, AHeaderThatDiffersFromTheIndexCostsItsTensor) {
  EXPECT_EQ(DamageOf({.name = "v"}, {}), "its name is 'v' in its header, but 'w' in the index");
  EXPECT_EQ(DamageOf({.kind = 1}, {}), "its type is 1 in its header, but 2 in the index");
  EXPECT_EQ(DamageOf({.dtype = "<i4"}, {}),
            "its dtype is '<i4' in its header, but '<f4' in the "
            "index");
  EXPECT_EQ(DamageOf({.shape = {4}}, {}),
            "its number of dimensions is 1 in its header, but 2 in the index");
  EXPECT_EQ(DamageOf({.shape = {4, 1}}, {}),
            "its shape is [4,1] in its header, but [2,2] in the "
            "index");
  EXPECT_EQ(DamageOf({.data_size = 12}, {}), "its length is 12 in its header, but 16 in the index");
}

TEST(Tensorizer, ANegativeLengthCostsItsTensor) {
  EXPECT_EQ(DamageOf({.data_size = -16}, {}),
            "its length is -16 in its header, but 16 in the index");
}

TEST(Tensorizer, BytesThatBelongToNothingCostTheirTensor) {
  EXPECT_EQ(DamageOf({.more = "xyz"}),
            "its header has 11 bytes where the length of its data alone should be");
}

TEST(Tensorizer, AHeaderThatTwoEntriesShareIsThatOfOne) {
  const TensorizerWriter writer = WithGood({});
  const std::string file = writer.Finish();
  const std::string offsets = file.substr(writer.offsets_in_entry(0), 16);
  EXPECT_EQ(DamageIn(Patched(file, writer.offsets_in_entry(1), offsets)),
            "its name is 'good' in its header, but 'w' in the index");
}

TEST(Tensorizer, RefusesTensorsThatOverlap) {
  const TensorizerWriter inner = TensorizerWriter().Add({});
  const std::string hidden = inner.Finish().substr(inner.header_offset(0));
  const TensorizerWriter writer =
      TensorizerWriter()
          .Add({.name = "a", .dtype = "|u1", .shape = {hidden.size()}, .data = hidden})
          .Add({});
  const size_t begin = writer.Finish().find(hidden);
  const std::string offsets = LittleEndian(begin, 8) + LittleEndian(begin + hidden.find("0123"), 8);
  EXPECT_EQ(ErrorOf(Patched(writer.Finish(), writer.offsets_in_entry(1), offsets)),
            "memory: tensor 'w': from byte 185 on it overlaps tensor 'a', which ends at byte 247");
}

TEST(Tensorizer, RefusesAFileOfWhichNothingCanBeRead) {
  const std::string file = TensorizerWriter().Add({}).Finish();
  EXPECT_EQ(ErrorOf(file.substr(0, file.size() - 9)),
            "memory: tensor 'w': data out of range: 16 bytes at byte 152 (the file has 167): it is "
            "truncated");
}

TEST(Tensorizer, RefusesHeadersThatTakeTooMuchReading) {
  // All entries have the header of the first one, which has the maximum length.
  const std::string name(65'000, 'n');
  TensorizerWriter writer;
  writer.Add({.name = name});
  for (int i = 0; i < 200; ++i) writer.Add({.name = "x" + std::to_string(i), .data = ""});
  std::string file = writer.Finish();
  const std::string offsets = file.substr(writer.offsets_in_entry(0), 16);
  for (size_t i = 1; i <= 200; ++i) file = Patched(file, writer.offsets_in_entry(i), offsets);
  EXPECT_EQ(ErrorOf(file),
            "memory: parsing takes more than 6545568 steps, the limit for a file of this size");
}

// TensorEncryption. The keys have tests of their own.

Stored Encrypted(const std::string& section, const std::string& data = kEncrypted) {
  return {.dtype = "|u1", .shape = {data.size()}, .data = data, .encryption = section};
}

std::string Chunks(uint64_t chunk_size, size_t tags) {
  return EncryptionSection({{2, ChunksRecord(chunk_size, kNonce, std::string(16 * tags, 't'))}});
}

TEST(Tensorizer, AnnotatesTheEncryptionOfATensor) {
  const Checkpoint checkpoint = Read(TensorizerWriter(3).Add(Encrypted(EncryptionSection(
      {{1, DerivationRecord(3, 8192, kTag)}, {2, ChunksRecord(2 << 20, kNonce, kTag)}}))));
  const Tensor& tensor = TensorAt(checkpoint, "w");
  EXPECT_THAT(
      tensor.annotations,
      Contains(Pair("encryption",
                    R"({"cipher":"xsalsa20-poly1305","chunk_size":16,"chunks":1,"data_offset":270,)"
                    R"("key_derivation":{"method":"argon2id","passes":3,"memory":8192,)"
                    R"("salt":"a3361f25fbad35fa65eea06dc9a9f5ee"}})")));
  EXPECT_FALSE(tensor.is_in_file);
  EXPECT_THAT(checkpoint.annotations, Contains(Pair("encrypted", "true")));
}

TEST(Tensorizer, ShowsAllButTheBytesWithoutAKey) {
  const Stored encrypted = Encrypted(Chunks(1024, 1));
  Stored other = encrypted;
  other.name = "v";
  const Checkpoint checkpoint = Read(TensorizerWriter(3).Add(encrypted).Add(other));
  const Tensor& tensor = TensorAt(checkpoint, "w");
  EXPECT_EQ(MessageOf(tensor.error), "encrypted, but no key given: use -o key_file");
  EXPECT_EQ(tensor.error->code(), ENOKEY);
  EXPECT_EQ(tensor.data.length, 16U);
  EXPECT_THAT(checkpoint.warnings, ElementsAre("tensor 'w' and 1 more: encrypted, but no key "
                                               "given: use -o key_file: reading them will fail"));
}

TEST(Tensorizer, ReadsTensorsWithoutDataInAnEncryptedFile) {
  const Checkpoint checkpoint = Read(TensorizerWriter(4, 1).Add({.data = ""}));
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "w").data), std::string(16, '\0'));
}

std::string DamageOfEncrypted(const std::string& section, const std::string& data = kEncrypted) {
  const Checkpoint checkpoint = Read(WithGood(Encrypted(section, data), 3));
  return std::string(MessageOf(TensorAt(checkpoint, "w").error));
}

TEST(Tensorizer, DoesNotTakePlainBytesInAnEncryptedFileForEncrypted) {
  EXPECT_EQ(DamageOfEncrypted(""), "has data that is not encrypted, in a file that is");
}

TEST(Tensorizer, ReadsOneTagForWhateverSizeOfChunks) {
  EXPECT_EQ(DamageOfEncrypted(Chunks(7, 1)), "encrypted, but no key given: use -o key_file");
}

TEST(Tensorizer, ReadsDataThatIsEncryptedInOnePiece) {
  EXPECT_EQ(DamageOfEncrypted(EncryptionSection({{3, kNonce + kTag}})),
            "encrypted, but no key given: use -o key_file");
}

TEST(Tensorizer, AWrongNumberOfTagsCostsItsTensor) {
  EXPECT_EQ(DamageOfEncrypted(Chunks(1024, 0)),
            "has 0 tags, but its 16 bytes in chunks of 1024 need 1");
  EXPECT_EQ(DamageOfEncrypted(Chunks(1024, 2), std::string(2049, 'x')),
            "has 2 tags, but its 2049 bytes in chunks of 1024 need 3");
}

TEST(Tensorizer, ChunksThatNoReleaseReadsCostTheirTensor) {
  const std::string data(2000, 'x');
  const std::string most = ", but 1024 to 67108864 in steps of 64 are possible";
  EXPECT_EQ(DamageOfEncrypted(Chunks(0, 2), data), "is encrypted in chunks of 0 bytes" + most);
  EXPECT_EQ(DamageOfEncrypted(Chunks(960, 3), data), "is encrypted in chunks of 960 bytes" + most);
  EXPECT_EQ(DamageOfEncrypted(Chunks(1025, 2), data),
            "is encrypted in chunks of 1025 bytes" + most);
  EXPECT_EQ(DamageOfEncrypted(Chunks(128 << 20, 2), data),
            "is encrypted in chunks of 134217728 bytes" + most);
}

TEST(Tensorizer, TagsThatAreNotThereCostTheirTensor) {
  std::string section = Chunks(1024, 1);
  EXPECT_EQ(DamageOfEncrypted(section.substr(0, section.size() - 1)),
            "the section on its encryption at byte 249: record needs 58 bytes, but only 57 are "
            "left");
  section.replace(section.size() - 24, 8, LittleEndian(2, 8));
  EXPECT_EQ(DamageOfEncrypted(section, std::string(2000, 'x')),
            "the section on its encryption at byte 291: table of tags needs 32 bytes, but only 16 "
            "are left");
}

TEST(Tensorizer, UnknownWaysOfEncryptionCostTheirTensor) {
  const std::string chunks = ChunksRecord(1024, kNonce, kTag);
  EXPECT_EQ(DamageOfEncrypted(EncryptionSection({{4, ""}})), "is encrypted in the unknown way 4");
  EXPECT_EQ(DamageOfEncrypted(EncryptionSection({{1, DerivationRecord(1, 8192, kTag, 2)}})),
            "its key is derived by the unknown method 2");
  EXPECT_EQ(DamageOfEncrypted(EncryptionSection({{1, DerivationRecord(1, 8192, kTag, 1, 1)}})),
            "its key is derived by the unknown algorithm 1");
  EXPECT_EQ(DamageOfEncrypted(EncryptionSection({{1, DerivationRecord(1, 8192, "salt")}})),
            "the salt of its key has 4 bytes, but needs 16");
}

TEST(Tensorizer, RecordsThatDoNotGoTogetherCostTheirTensor) {
  const std::string chunks = ChunksRecord(1024, kNonce, kTag);
  const std::string derivation = DerivationRecord(1, 8192, kTag);
  EXPECT_EQ(DamageOfEncrypted(EncryptionSection({{2, chunks}, {3, kNonce + kTag}})),
            "is encrypted in more ways than one");
  EXPECT_EQ(DamageOfEncrypted(EncryptionSection({{1, derivation}, {1, derivation}})),
            "its key is derived in more ways than one");
  EXPECT_EQ(DamageOfEncrypted(EncryptionSection({{1, derivation}})),
            "has a key, but no record on its use");
}

TEST(Tensorizer, BytesInASectionThatBelongToNothingCostTheirTensor) {
  EXPECT_EQ(DamageOfEncrypted(Chunks(1024, 1) + "x"),
            "the section on its encryption has 1 extra bytes at its end");
  EXPECT_EQ(DamageOfEncrypted(EncryptionSection({{3, kNonce + kTag + "x"}})),
            "a record on its encryption has 1 extra bytes at its end");
}

TEST(Tensorizer, ASectionBeyondItsHeaderCostsItsTensor) {
  const TensorizerWriter writer = WithGood(Encrypted(Chunks(1024, 1)), 3);
  const size_t length = writer.header_offset(1) + 26;
  const Checkpoint checkpoint = ReadCheckpoint(std::make_shared<MemorySource>(
      Patched(writer.Finish(), length, LittleEndian(uint64_t{1} << 40U, 8))));
  EXPECT_EQ(MessageOf(TensorAt(checkpoint, "w").error),
            "the section on its encryption needs 1099511627776 bytes, but only 76 are left");
}

}  // namespace
}  // namespace ckptfs
