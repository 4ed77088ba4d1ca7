#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/codec/pickle.h"
#include "parser/codec/pickle/lexer.h"
#include "parser/detect.h"
#include "parser/format/torch/legacy.h"
#include "parser/format/torch/reader.h"
#include "parser/io/simple_sources.h"
#include "tests/support/pickle_writer.h"
#include "tests/support/sources.h"

namespace ckptfs {
namespace {

using std::string_literals::operator""s;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::ThrowsMessage;
using View = PickleWriter::View;

const std::string kMagic = "\x80\x02\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19."s;
const std::string kVersion = "\x80\x02M\xe9\x03."s;

const View kOne{.offset = 0, .shape = {1}, .stride = {1}};
const View kFour{.offset = 0, .shape = {4}, .stride = {1}};

std::string Int64(int64_t number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

std::string System(bool is_little_endian = true) {
  return PickleWriter()
      .EmptyDict()
      .Text("protocol_version")
      .Int(1001)
      .SetItem()
      .Text("little_endian")
      .Bool(is_little_endian)
      .SetItem()
      .Finish();
}

std::string Keys(const std::vector<std::string>& keys) {
  PickleWriter pickle;
  pickle.EmptyList();
  for (const std::string& key : keys) pickle.Text(key).Append();
  return pickle.Finish();
}

// The pickles of a stream, which precede the storages.
std::string Pickles(const PickleWriter& objects, const std::vector<std::string>& keys) {
  return kMagic + kVersion + System() + objects.Finish() + Keys(keys);
}

Checkpoint Read(const std::string& file) {
  return ReadCheckpoint(std::make_shared<MemorySource>(file));
}

// A dict of the tensors "a", "b", ..., each of four bytes and of a storage of its own: "0", "1",
// ...
PickleWriter Tensors(int count) {
  PickleWriter pickle;
  pickle.EmptyDict();
  for (int i = 0; i < count; ++i) {
    pickle.Text(std::string(1, static_cast<char>('a' + i)));
    pickle.Tensor("Byte", std::to_string(i), 4, kFour).SetItem();
  }
  return pickle;
}

// A persistent id with a view of another storage.
PickleWriter ViewOfStorage(int64_t offset, int64_t size) {
  PickleWriter pickle;
  pickle.Global("torch._utils", "_rebuild_tensor").Mark();
  pickle.Mark().Text("storage").Global("torch", "ShortStorage").Text("0").Text("cpu").Int(4);
  pickle.Mark().Text("1").Int(offset).Int(size).Tuple().Tuple().Raw("Q");
  const int64_t shape[] = {1};
  pickle.Int(0).Ints(shape).Ints(shape).Tuple().Reduce();
  return pickle;
}

TEST(Legacy, ReadsATensorInADict) {
  const std::string pickles = Pickles(Tensors(1), {"0"});
  const Checkpoint checkpoint = Read(pickles + Int64(4) + "abcd");
  const Tensor& tensor = TensorAt(checkpoint, "a");
  EXPECT_EQ(checkpoint.format, "torch-legacy");
  EXPECT_EQ(tensor.dtype, Dtype::kUint8);
  EXPECT_EQ(ReadString(tensor.data), "abcd");
  EXPECT_EQ(tensor.member, "storage 0");
  EXPECT_TRUE(tensor.is_in_file);
  EXPECT_EQ(tensor.file_offset, pickles.size() + 8);
  EXPECT_THAT(checkpoint.warnings, IsEmpty());
}

TEST(Legacy, RecordsTheMachineThatWroteIt) {
  const Checkpoint checkpoint = Read(Pickles(PickleWriter().Int(7), {}));
  EXPECT_THAT(checkpoint.annotations, ElementsAre(Annotation{"protocol_version", "1001"},
                                                  Annotation{"little_endian", "true"}));
}

TEST(Legacy, FindsTheStoragesInTheOrderOfTheirKeys) {
  const Checkpoint checkpoint = Read(Pickles(Tensors(3), {"2", "0", "1"}) + Int64(4) + "cccc" +
                                     Int64(4) + "aaaa" + Int64(4) + "bbbb");
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "a").data), "aaaa");
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "b").data), "bbbb");
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "c").data), "cccc");
}

TEST(Legacy, TakesTheBytesAsTheyAreAlsoFromABigEndianMachine) {
  const PickleWriter objects = PickleWriter().Tensor("Short", "0", 1, kOne);
  const Checkpoint checkpoint = Read(kMagic + kVersion + System(false) + objects.Finish() +
                                     Keys({"0"}) + Int64(1) + "\x01\x02");
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "tensor").data), "\x01\x02");
}

TEST(Legacy, CountsTheBytesOfAnUntypedStorage) {
  PickleWriter objects;
  objects.Mark().Text("storage").Global("torch.storage", "UntypedStorage").Text("0").Text("cpu");
  objects.Int(3).None().Tuple().Raw("Q");
  const Checkpoint checkpoint = Read(Pickles(objects, {"0"}) + Int64(3) + "abc");
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "tensor").data), "abc");
}

TEST(Legacy, ReadsKeysOfPython2) {
  PickleWriter objects;
  objects.Mark()
      .Raw("U\x07storage")
      .Global("torch", "ByteStorage")
      .Raw("U\x01\xff")
      .Raw(
          "U\x03"
          "cpu");
  objects.Int(3).None().Tuple().Raw("Q");
  const std::string keys = PickleWriter().EmptyList().Raw("U\x01\xff").Append().Finish();
  const Checkpoint checkpoint =
      Read(kMagic + kVersion + System() + objects.Finish() + keys + Int64(3) + "abc");
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "tensor").data), "abc");
}

TEST(Legacy, ReadsAStorageThatIsAViewOfAnother) {
  const Checkpoint checkpoint = Read(Pickles(ViewOfStorage(2, 2), {"0"}) + Int64(4) + "aabbccdd");
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "tensor").data), "cc");
}

TEST(Legacy, RefusesAStorageThatIsAViewBeyondAnother) {
  EXPECT_THAT([] { Read(Pickles(ViewOfStorage(3, 2), {"0"}) + Int64(4) + "aabbccdd"); },
              ThrowsMessage<Error>("memory: pickle 4: tensor 'tensor': its storage is 4 bytes from "
                                   "byte 6 on of storage '0', which has 8 bytes"));
}

TEST(Legacy, RefusesAStorageThatIsAViewOfNegativeSize) {
  EXPECT_THAT([] { Read(Pickles(ViewOfStorage(0, -1), {"0"}) + Int64(4) + "aabbccdd"); },
              ThrowsMessage<Error>("memory: pickle 4: tensor 'tensor': its storage has -1 "
                                   "elements"));
}

TEST(Legacy, RefusesATensorThatLeavesTheViewOfAStorage) {
  EXPECT_THAT([] { Read(Pickles(ViewOfStorage(4, 0), {"0"}) + Int64(4) + "aabbccdd"); },
              ThrowsMessage<Error>("memory: pickle 4: tensor 'tensor': view out of range: 2 bytes "
                                   "from element 0 on (storage 0 has 0 bytes)"));
}

TEST(Legacy, TakesTheSourceCodeOfAModuleForItsClass) {
  PickleWriter objects;
  objects.EmptyDict().Text("net").Mark().Text("module").Global("nets", "Net");
  objects.Text("nets.py").Text("class Net: ...").Tuple().Raw("Q)\x81}").Text("w");
  objects.Tensor("Byte", "0", 4, kFour).SetItem().Build().SetItem();
  const Checkpoint checkpoint = Read(Pickles(objects, {"0"}) + Int64(4) + "abcd");
  EXPECT_EQ(std::get<std::unique_ptr<Group>>(At(checkpoint.root, "net").content)->python_type,
            "nets.Net");
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "net/w").data), "abcd");
}

TEST(Legacy, RecordsTheGlobalsOfAllItsPickles) {
  const std::string system = PickleWriter().Global("os", "system").Raw("(tR").Finish();
  const Checkpoint checkpoint =
      Read(kMagic + kVersion + system + PickleWriter().Int(7).Finish() + Keys({}));
  EXPECT_THAT(checkpoint.globals, ElementsAre(Global{"os.system", true}));
}

TEST(Legacy, RecordsTheNumberOfTrailingBytes) {
  const Checkpoint checkpoint = Read(Pickles(Tensors(1), {"0"}) + Int64(4) + "abcdrest");
  EXPECT_THAT(checkpoint.annotations, testing::Contains(Annotation{"trailing_bytes", "4"}));
  EXPECT_THAT(checkpoint.warnings, IsEmpty());
}

TEST(Legacy, ReadsStreamsThatFollowOneAnotherAsAList) {
  const std::string file = Pickles(Tensors(1), {"0"}) + Int64(4) + "abcd";
  const std::string number =
      kMagic + kVersion + System() + PickleWriter().Int(7).Finish() + Keys({});
  const Checkpoint checkpoint = Read(file + number + file);
  EXPECT_THAT(checkpoint.warnings, IsEmpty());
  EXPECT_EQ(checkpoint.root.python_type, "list");
  ASSERT_EQ(checkpoint.root.members.size(), 3U);
  EXPECT_EQ(checkpoint.root.members[2].key.text, "2");
  EXPECT_EQ(std::get<Value>(checkpoint.root.members[1].content).json, "7");
  const auto& last = std::get<std::unique_ptr<Group>>(checkpoint.root.members[2].content);
  EXPECT_EQ(ReadString(std::get<Tensor>(last->members.at(0).content).data), "abcd");
}

TEST(Legacy, KeepsTheStreamsBeforeACorruptOne) {
  const std::string file = Pickles(Tensors(1), {"0"}) + Int64(4) + "abcd";
  const Checkpoint checkpoint = Read(file + kMagic + "garbage");
  EXPECT_EQ(checkpoint.root.members.size(), 1U);
  EXPECT_THAT(checkpoint.warnings,
              ElementsAre(testing::StartsWith("stream 1 at byte " + std::to_string(file.size()))));
}

TEST(Legacy, IsRecognisedInProtocol0) {
  EXPECT_TRUE(torch::IsLegacy("L119547037146038801333356L\n.L1001L\n."));
}

TEST(Legacy, IsRecognisedInProtocol4) {
  EXPECT_TRUE(torch::IsLegacy("\x80\x04\x95\r\0\0\0\0\0\0\0\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19."s));
}

TEST(Legacy, IsNotRecognisedInAnotherNumber) {
  EXPECT_FALSE(torch::IsLegacy("\x80\x02\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x1a."s));
}

TEST(Legacy, IsNotRecognisedInAFileThatIsCutInItsMark) {
  EXPECT_FALSE(torch::IsLegacy("\x80\x02\x8a\nl\xfc\x9c"s));
}

TEST(Legacy, ReportsAnUnsupportedVersion) {
  EXPECT_THAT([] { Read(kMagic + PickleWriter().Int(1002).Finish()); },
              ThrowsMessage<Error>("memory: pickle 2: unsupported version 1002 of the "
                                   "format (expected 1001)"));
}

// The storages "0", "1" and "2" of the tensors "a", "b" and "c".
Checkpoint ReadThree(const std::string& payload) {
  return Read(Pickles(Tensors(3), {"0", "1", "2"}) + payload);
}

std::string Place(uint64_t in_payload) {
  return std::to_string(Pickles(Tensors(3), {"0", "1", "2"}).size() + in_payload);
}

TEST(Legacy, LosesTheStoragesBehindOneOfAnotherSize) {
  const Checkpoint checkpoint =
      ReadThree(Int64(4) + "aaaa" + Int64(5) + "bbbbb" + Int64(4) + "cccc");
  const std::string why =
      "storage '1' at byte " + Place(12) + ": wrong number of elements (found 5, expected 4)";
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "a").data), "aaaa");
  EXPECT_EQ(MessageOf(TensorAt(checkpoint, "b").error), why);
  EXPECT_EQ(MessageOf(TensorAt(checkpoint, "c").error),
            "the offset of storage '2' is unknown: " + why);
  EXPECT_THAT(checkpoint.warnings,
              ElementsAre("tensor 'b': " + why + ": reading it will fail",
                          "tensor 'c': the offset of storage '2' is unknown: " + why +
                              ": reading it will fail"));
}

TEST(Legacy, LosesTheStoragesBehindOneOfANegativeSize) {
  const Checkpoint checkpoint = ReadThree(Int64(4) + "aaaa" + Int64(-4) + "bbbb" + Int64(4));
  EXPECT_EQ(
      MessageOf(TensorAt(checkpoint, "b").error),
      "storage '1' at byte " + Place(12) + ": wrong number of elements (found -4, expected 4)");
}

TEST(Legacy, LosesTheStoragesBehindOneThatNoObjectNames) {
  const std::string file = Pickles(Tensors(2), {"0", "x", "1"}) + Int64(4) + "aaaa" + Int64(4) +
                           "xxxx" + Int64(4) + "bbbb";
  const Checkpoint checkpoint = Read(file);
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "a").data), "aaaa");
  EXPECT_EQ(MessageOf(TensorAt(checkpoint, "b").error),
            "the offset of storage '1' is unknown: storage 'x' at byte " +
                std::to_string(file.size() - 24) + " has an unknown size: no object refers to it");
}

TEST(Legacy, LosesAStorageThatIsNotListed) {
  const Checkpoint checkpoint = Read(Pickles(Tensors(2), {"0"}) + Int64(4) + "aaaa");
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "a").data), "aaaa");
  EXPECT_EQ(MessageOf(TensorAt(checkpoint, "b").error), "storage '1' not found in the file");
}

TEST(Legacy, LosesAStorageThatIsCut) {
  const Checkpoint checkpoint = ReadThree(Int64(4) + "aaaa" + Int64(4) + "bbb");
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "a").data), "aaaa");
  EXPECT_EQ(MessageOf(TensorAt(checkpoint, "b").error),
            "storage '1' of 4 bytes at byte " + Place(20) + ": unexpected end of file at byte " +
                Place(23));
}

TEST(Legacy, LosesAStorageWhoseNumberOfElementsIsCut) {
  const Checkpoint checkpoint = ReadThree(Int64(4) + "aaaa" + Int64(4).substr(1));
  EXPECT_EQ(MessageOf(TensorAt(checkpoint, "b").error),
            "storage '1' at byte " + Place(12) + ": unexpected end of file at byte " + Place(19));
}

// A source that cannot be read beyond a position.
class BrokenFrom final : public MemorySource {
 public:
  BrokenFrom(std::string bytes, uint64_t place) : MemorySource(std::move(bytes)), place_(place) {}
  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    if (offset >= place_) Fail(EIO, "the disk is broken");
    MemorySource::ReadAt(offset, buffer);
  }

 private:
  const uint64_t place_;
};

TEST(Legacy, LosesTheStoragesBehindAnUnreadableOne) {
  const std::string pickles = Pickles(Tensors(3), {"0", "1", "2"});
  const std::string file = pickles + Int64(4) + "aaaa" + Int64(4) + "bbbb" + Int64(4) + "cccc";
  const ReadOptions options;
  Budget budget = Budget::ForFile(file.size());
  torch::Reading reading(budget, {}, options);
  const auto source = std::make_shared<BrokenFrom>(file, pickles.size() + 12);
  const Checkpoint checkpoint = torch::ReadLegacy({source, 0, file.size()}, reading);
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "a").data), "aaaa");
  EXPECT_EQ(MessageOf(TensorAt(checkpoint, "b").error),
            "storage '1' at byte " + Place(12) + ": the disk is broken");
}

TEST(Legacy, RefusesAFileOfWhichNothingIsLeft) {
  EXPECT_THAT([] { ReadThree(""); },
              ThrowsMessage<Error>("memory: pickle 4: tensor 'a': storage '0' at byte " + Place(0) +
                                   ": unexpected end of file at byte " + Place(0)));
}

TEST(Legacy, RefusesAFileThatIsCutBeforeAPickle) {
  EXPECT_THAT(
      [] { Read(kMagic + kVersion); },
      ThrowsMessage<Error>("memory: pickle 3 at byte 21: unexpected end of pickle at byte 0: "
                           "STOP is missing"));
}

TEST(Legacy, RefusesAFileThatIsCutInAPickle) {
  EXPECT_THAT(
      [] { Read(kMagic + kVersion + System() + "\x80\x02X\x05\0\0\0ab"s); },
      ThrowsMessage<Error>("memory: pickle 4 at byte " + std::to_string(21 + System().size()) +
                           ": BINUNICODE at byte 2: argument needs 5 bytes, but only 2 are "
                           "left"));
}

// Whatever is cut off, what is shown of the rest is right.
TEST(Legacy, ShowsNoCorruptByteWhereverItIsTruncated) {
  const std::string file = Pickles(Tensors(3), {"0", "1", "2"}) + Int64(4) + "abcd" + Int64(4) +
                           "abcd" + Int64(4) + "abcd";
  size_t readable = 0;
  for (size_t length = 0; length < file.size(); ++length) {
    SCOPED_TRACE("cut to " + std::to_string(length) + " bytes");
    try {
      const Checkpoint checkpoint = Read(file.substr(0, length));
      for (const Member& member : checkpoint.root.members) {
        const auto& tensor = std::get<Tensor>(member.content);
        if (tensor.error) continue;
        EXPECT_EQ(ReadString(tensor.data), "abcd");
        ++readable;
      }
    } catch (const Error&) {
    }
  }
  // One for each length with the first storage but not the second, then two.
  EXPECT_EQ(readable, 12U + 2 * 12U);
}

TEST(Legacy, RefusesAKeyThatIsListedTwice) {
  EXPECT_THAT(
      [] {
        Read(Pickles(Tensors(1), {"0", "0"}) + Int64(4) + "aaaa");
      },
      ThrowsMessage<Error>("memory: pickle 5: duplicate key '0'"));
}

TEST(Legacy, RefusesAnInvalidListOfKeys) {
  EXPECT_THAT([] { Read(kMagic + kVersion + System() + Tensors(1).Finish() + "N."); },
              ThrowsMessage<Error>("memory: pickle 5 is not a list of the keys of storages"));
}

TEST(Legacy, RefusesAKeyThatIsNoText) {
  EXPECT_THAT([] { Read(kMagic + kVersion + System() + Tensors(1).Finish() + "]Na."); },
              ThrowsMessage<Error>("memory: pickle 5 has a key that is not text"));
}

TEST(Legacy, RefusesALongKeyInTheListBeforeItIsSorted) {
  const std::string keys = "](X" + std::string("\x81\0\0\0", 4) + std::string(129, '1') + "e.";
  EXPECT_THAT([&] { Read(kMagic + kVersion + System() + Tensors(1).Finish() + keys); },
              ThrowsMessage<Error>("memory: pickle 5 has a key of 129 bytes (maximum 128)"));
}

TEST(Legacy, RefusesAKeyThatIsLongerThanAnyKey) {
  const std::string key(129, '1');
  EXPECT_THAT([&] { Read(Pickles(PickleWriter().Tensor("Byte", key, 4, kFour), {"0"})); },
              ThrowsMessage<Error>("memory: pickle 4: tensor 'tensor': its storage has a key of "
                                   "129 bytes (maximum 128)"));
}

TEST(Legacy, RefusesAStorageOfMoreBytesThanThereCanBe) {
  const int64_t most = int64_t{1} << 62;
  EXPECT_THAT(
      [&] { Read(Pickles(PickleWriter().Tensor("Double", "0", most, kOne), {"0"}) + Int64(most)); },
      ThrowsMessage<Error>("memory: pickle 4: tensor 'tensor': its storage has "
                           "4611686018427387904 elements"));
}

TEST(Legacy, RefusesAStorageThatReachesBeyondAllFiles) {
  const int64_t most = int64_t{1} << 60;
  const std::string pickles = Pickles(PickleWriter().Tensor("Double", "0", most, kOne), {"0"});
  EXPECT_THAT([&] { Read(pickles + Int64(most)); },
              ThrowsMessage<Error>("memory: pickle 4: tensor 'tensor': storage '0' of "
                                   "9223372036854775808 bytes at byte " +
                                   std::to_string(pickles.size() + 8) +
                                   ": unexpected end of file at byte " +
                                   std::to_string(pickles.size() + 8)));
}

TEST(Legacy, CutsAListThatContainsItself) {
  const PickleWriter objects = PickleWriter().EmptyDict().Text("l").Raw("]q\x01h\x01").Append();
  EXPECT_EQ(ValueAt(Read(Pickles(PickleWriter(objects).SetItem(), {})), "l").json, R"(["..."])");
}

TEST(Legacy, RefusesObjectsThatLieInOneAnotherTooDeep) {
  const PickleWriter objects =
      PickleWriter().Raw(std::string(100'000, ']')).Raw(std::string(99'999, 'a'));
  EXPECT_THAT([&] { Read(Pickles(objects, {})); },
              ThrowsMessage<Error>("memory: pickle 4: objects are nested more than 1000 "
                                   "levels deep"));
}

// A pickle by itself whose tensor "w" has the file `inner` as its storage, as bytes that `spell`
// spells.
std::string Plain(const std::string& inner, std::string (*spell)(const std::string&)) {
  PickleWriter pickle;
  pickle.EmptyDict().Text("w").Global("torch._utils", "_rebuild_tensor_v2").Mark();
  pickle.Global("torch.storage", "_load_from_bytes").Raw(spell(inner)).Raw("\x85R");
  const int64_t shape[] = {2};
  const int64_t stride[] = {1};
  pickle.Int(1).Ints(shape).Ints(stride).Bool(false);
  pickle.Global("collections", "OrderedDict").Raw(")R").Tuple().Reduce().SetItem();
  return pickle.Finish();
}

std::string Binary(const std::string& bytes) {
  const auto length = static_cast<uint32_t>(bytes.size());
  return "B" + std::string(reinterpret_cast<const char*>(&length), sizeof length) + bytes;
}

// As protocol 2 has it: each byte is a character.
std::string Encoded(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x80) text += static_cast<char>(0xC0U | byte >> 6U);
    text += static_cast<char>(byte < 0x80 ? byte : 0x80U | (byte & 0x3FU));
  }
  const std::string opcodes =
      PickleWriter().Global("_codecs", "encode").Text(text).Text("latin1").Raw("\x86R").Finish();
  return opcodes.substr(2, opcodes.size() - 3);  // Without PROTO and STOP.
}

// A file of torch.save whose object is a storage of `elements` of two bytes.
std::string SavedStorage(int64_t elements, const std::string& bytes) {
  return Pickles(PickleWriter().Storage("Short", "7", elements), {"7"}) + Int64(elements) + bytes;
}

TEST(Nested, ReadsAStorageThatIsAFileInAPickle) {
  const std::string inner = SavedStorage(3, "aabbcc");
  const std::string file = Plain(inner, Binary);
  const Checkpoint checkpoint = Read(file);
  const Tensor& tensor = TensorAt(checkpoint, "w");
  EXPECT_EQ(checkpoint.format, "pickle");
  EXPECT_EQ(tensor.dtype, Dtype::kInt16);
  EXPECT_EQ(ReadString(tensor.data), "bbcc");
  EXPECT_TRUE(tensor.is_in_file);
  EXPECT_EQ(tensor.file_offset, file.find("bbcc"));
}

TEST(Nested, ReadsAStorageThatIsAFileSpeltAsText) {
  const Checkpoint checkpoint = Read(Plain(SavedStorage(3, "\xff\xfe\x80\x7f\0\1"s), Encoded));
  const Tensor& tensor = TensorAt(checkpoint, "w");
  EXPECT_EQ(ReadString(tensor.data), "\x80\x7f\0\1"s);
  EXPECT_FALSE(tensor.is_in_file);
}

TEST(Nested, ShowsAStorageByItself) {
  const Checkpoint checkpoint = Read(PickleWriter()
                                         .Global("torch.storage", "_load_from_bytes")
                                         .Raw(Binary(SavedStorage(3, "aabbcc")))
                                         .Raw("\x85R")
                                         .Finish());
  EXPECT_EQ(TensorAt(checkpoint, "tensor").dtype, Dtype::kInt16);
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "tensor").data), "aabbcc");
}

TEST(Nested, ReportsACorruptFile) {
  EXPECT_THAT([] { Read(Plain(SavedStorage(3, "aabb"), Binary)); },
              ThrowsMessage<Error>(testing::StartsWith(
                  "memory: tensor 'w': pickle 4: tensor 'tensor': storage '7' of 6 bytes at")));
}

TEST(Nested, RefusesAFileWithoutAStorage) {
  EXPECT_THAT([] { Read(Plain(Pickles(PickleWriter().Int(7), {}), Binary)); },
              ThrowsMessage<Error>("memory: tensor 'w': its storage is a file without a storage"));
}

TEST(Nested, RefusesATensorBeyondItsFile) {
  EXPECT_THAT(
      [] { Read(Plain(SavedStorage(2, "aabb"), Binary)); },
      ThrowsMessage<Error>("memory: tensor 'w': view out of range: 4 bytes from element 1 on "
                           "(storage 7 has 4 bytes)"));
}

TEST(Nested, RefusesFilesThatLieInOneAnotherTooDeep) {
  std::string file = SavedStorage(3, "aabbcc");
  for (int i = 0; i < 3; ++i) file = Plain(file, Binary);
  EXPECT_THAT([&] { Read(file); },
              ThrowsMessage<Error>("memory: files are nested more than 2 levels deep"));
}

TEST(Nested, ReadsAFileOnceThatManyTensorsShare) {
  // Each reading of the file would take half a megabyte, and all of them more than there may be.
  const std::string big =
      PickleWriter().Raw(std::string(500'000, '}')).Storage("Short", "7", 3).Finish();
  const std::string inner = kMagic + kVersion + System() + big + Keys({"7"}) + Int64(3) + "aabbcc";
  PickleWriter pickle;
  pickle.EmptyList()
      .Raw(Binary(inner))
      .Raw(
          "q\x01"
          "0");
  for (int i = 0; i < 1000; ++i) {
    pickle.Global("torch.storage", "_load_from_bytes").Raw("h\x01\x85R").Append();
  }
  const Checkpoint checkpoint = Read(pickle.Finish());
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "999").data), "aabbcc");
  EXPECT_EQ(TensorAt(checkpoint, "0").data.source, TensorAt(checkpoint, "999").data.source);
}

// A pickle of an empty dict after more opcodes than small files may have.
std::string LongPickle() {
  std::string pickle = "\x80\2";
  for (int i = 0; i < 5'000'000; ++i) pickle += "N0";
  return pickle + "}.";
}

TEST(Legacy, MayHaveAPickleOfTenMegabytes) {
  const std::string keys = "].";
  EXPECT_EQ(Read(kMagic + kVersion + System() + LongPickle() + keys).format, "torch-legacy");
}

TEST(Pickles, MayHaveTenMegabytes) { EXPECT_EQ(Read(LongPickle()).format, "pickle"); }

uint64_t LengthOfAll(const ByteSourcePtr& source) {
  Budget budget = Budget::ForFile(source->size());
  return pickle::LengthOf({source, 0, source->size()}, budget);
}

// The length of `pickle`, in the middle of other bytes.
uint64_t LengthIn(const std::string& pickle) {
  const auto source = std::make_shared<MemorySource>("....." + pickle + ".....");
  Budget budget = Budget::ForFile(0);
  return pickle::LengthOf({source, 5, pickle.size() + 5}, budget);
}

TEST(LengthOfPickle, GrowsTheBudgetByTheStoredBytes) {
  const auto source = std::make_shared<MemorySource>(LongPickle());
  Budget budget;
  budget.AddFile(source->size(), false);
  const uint64_t before = budget.limit();
  EXPECT_EQ(pickle::LengthOf({source, 0, source->size()}, budget), source->size());
  EXPECT_EQ(budget.limit() - before, 16 * source->size());
  EXPECT_EQ(pickle::LengthOf({source, 0, source->size()}, budget), source->size());
  EXPECT_EQ(budget.limit() - before, 16 * source->size());  // No file counts twice.
}

TEST(LengthOfPickle, SkipsTheArgumentsOfAllOpcodes) {
  const std::string opcodes[] = {"N0",
                                 "K.0",
                                 "M..0",
                                 "J....0",
                                 "G........0",
                                 "\x8a\x02..0",
                                 "\x8b\x02\0\0\0..0"s,
                                 "I1.\n0",
                                 "L.\n0",
                                 "F.\n0",
                                 "S'.'\n0",
                                 "V.\n0",
                                 "U\x01.0",
                                 "T\x01\0\0\0.0"s,
                                 "X\x01\0\0\0.0"s,
                                 "\x8c\x01.0",
                                 "\x8d\x01\0\0\0\0\0\0\0.0"s,
                                 "C\x01.0",
                                 "B\x01\0\0\0.0"s,
                                 "\x8e\x01\0\0\0\0\0\0\0.0"s,
                                 "\x96\x01\0\0\0\0\0\0\0.0"s,
                                 "c.\n.\n0",
                                 "(i.\n.\n0",
                                 "P.\n0",
                                 "Np.\n0",
                                 "Nq.0",
                                 "Nr....0",
                                 "g.\n0",
                                 "h.0",
                                 "j....0",
                                 "\x95........",
                                 "\x82.",
                                 "\x83..",
                                 "\x84....",
                                 "(lt]})\x85\x86\x87"};
  std::string all = "\x80\x04";
  for (const std::string& opcode : opcodes) {
    EXPECT_EQ(LengthIn(opcode + "."), opcode.size() + 1) << opcode;
    all += opcode;
  }
  EXPECT_EQ(LengthIn(all + "."), all.size() + 1);
}

// Counts the reads of zeros with other bytes in the middle.
class CountingSource final : public MemorySource {
 public:
  using MemorySource::MemorySource;
  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    MemorySource::ReadAt(offset, buffer);
    read_ += buffer.size();
  }
  uint64_t read() const { return read_; }

 private:
  mutable uint64_t read_ = 0;
};

TEST(LengthOfPickle, DoesNotReadTextsAndBytes) {
  const std::string pickle = "\x80\x03" + Binary(std::string(10 << 20, 'x')) + ".";
  const auto source = std::make_shared<CountingSource>(pickle);
  EXPECT_EQ(LengthOfAll(source), pickle.size());
  EXPECT_LE(source->read(), 1024U);
}

TEST(LengthOfPickle, ReadsALongOneOnce) {
  const std::string pickle = std::string(10 << 20, 'N') + ".";
  const auto source = std::make_shared<CountingSource>(pickle);
  EXPECT_EQ(LengthOfAll(source), pickle.size());
  EXPECT_EQ(source->read(), pickle.size());
}

TEST(LengthOfPickle, ReadsALineAcrossPieces) {
  const std::string pickle = "V" + std::string(5'000'000, 'x') + "\n.";
  EXPECT_EQ(LengthIn(pickle), pickle.size());
}

void ExpectNoLength(const std::string& pickle, const std::string& message) {
  const auto source = std::make_shared<MemorySource>(pickle);
  EXPECT_THAT([&] { LengthOfAll(source); }, ThrowsMessage<Error>(message));
}

TEST(LengthOfPickle, ReportsATruncatedPickle) {
  ExpectNoLength("NN", "unexpected end of pickle at byte 2: STOP is missing");
}

TEST(LengthOfPickle, ReportsAnUnknownOpcode) {
  ExpectNoLength("N\xff.", "unknown opcode 0xff at byte 1");
}

TEST(LengthOfPickle, ReportsATruncatedLine) {
  ExpectNoLength("Nc.\n.", "GLOBAL at byte 1: unterminated line");
}

TEST(LengthOfPickle, ReportsANegativeLength) {
  ExpectNoLength("T\xff\xff\xff\xff.", "BINSTRING at byte 0: negative length");
}

TEST(LengthOfPickle, ReportsTruncatedBytes) {
  ExpectNoLength("\x8e\xff\xff\xff\xff\xff\xff\xff\xff.",
                 "BINBYTES8 at byte 0: argument needs 18446744073709551615 bytes, but only 1 are "
                 "left");
}

TEST(LengthOfPickle, ReportsATruncatedLength) {
  ExpectNoLength("X\1", "BINUNICODE at byte 0: argument needs 4 bytes, but only 1 are left");
}

}  // namespace
}  // namespace ckptfs
