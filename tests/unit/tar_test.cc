#include "parser/codec/tar.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/error.h"
#include "parser/detect.h"
#include "parser/io/simple_sources.h"
#include "tests/support/pickle_writer.h"
#include "tests/support/sources.h"
#include "tests/support/tar.h"

namespace ckptfs {
namespace {

using std::string_literals::operator""s;
using Entry = TarEntry;
using testing::ThrowsMessage;

// "name: data" of all members.
std::vector<std::string> List(const std::string& archive) {
  const MemorySource source(archive);
  Budget budget(1 << 20);
  std::vector<std::string> list;
  for (const tar::Member& member : tar::ReadDirectory(source, budget)) {
    list.push_back(member.name + ": " + ReadString(source, member.offset, member.size));
  }
  return list;
}

using Strings = std::vector<std::string>;

TEST(Tar, ListsMembersByName) {
  EXPECT_EQ(List(TarFile("b/c", "second") + TarFile("a", "") + kTarEnd),
            (Strings{"a: ", "b/c: second"}));
}

TEST(Tar, EndsAtTheZeros) {
  EXPECT_EQ(List(TarFile("a", "1") + kTarEnd + TarFile("b", "2")), (Strings{"a: 1"}));
}

TEST(Tar, MayEndWithoutZeros) { EXPECT_EQ(List(TarFile("a", "1")), (Strings{"a: 1"})); }

TEST(Tar, MayEndWithoutPadding) {
  EXPECT_EQ(List(TarFile("a", "1").substr(0, 513)), (Strings{"a: 1"}));
}

TEST(Tar, LeavesOutDirectories) {
  EXPECT_EQ(List(TarMember({.name = "d/", .type = '5'}, "") + TarFile("d/a", "1")),
            (Strings{"d/a: 1"}));
}

TEST(Tar, TakesTheNameFromPaxRecords) {
  EXPECT_EQ(List(TarMember({.name = "././@PaxHeader", .type = 'x'},
                           "22 mtime=1485000000.5\n13 path=long\n") +
                 TarFile("short", "1") + TarFile("other", "2")),
            (Strings{"long: 1", "other: 2"}));
}

TEST(Tar, TakesTheSizeFromPaxRecords) {
  EXPECT_EQ(List(TarMember({.name = "x", .type = 'x'}, "10 size=3\n") +
                 TarMember({.name = "a", .size = "00000000000"}, "abc")),
            (Strings{"a: abc"}));
}

TEST(Tar, TakesTheNameFromGnuMembers) {
  EXPECT_EQ(List(TarMember({.name = "././@LongLink", .type = 'L', .magic = "ustar  "}, "long\0"s) +
                 TarMember({.name = "short", .magic = "ustar  "}, "1")),
            (Strings{"long: 1"}));
}

TEST(Tar, TakesTheBeginningOfANameFromItsPrefix) {
  EXPECT_EQ(List(TarMember({.name = "a", .prefix = "d"}, "1")), (Strings{"d/a: 1"}));
}

TEST(Tar, ReadsABinarySize) {
  EXPECT_EQ(List(TarMember({.name = "a", .size = "\x80\0\0\0\0\0\0\0\0\0\0\3"s}, "abc")),
            (Strings{"a: abc"}));
}

void ExpectRefusal(const std::string& archive, const std::string& message) {
  EXPECT_THAT([&] { List(archive); }, ThrowsMessage<Error>(message));
}

TEST(Tar, RefusesAnAbsoluteName) {
  ExpectRefusal(TarFile("/a", "1"), "header at byte 0: name '/a' begins with a slash");
}

TEST(Tar, RefusesANameThatLeavesTheArchive) {
  ExpectRefusal(TarFile("a", "") + TarFile("b/../../c", ""),
                "header at byte 512: name 'b/../../c' has a part that is '.' or '..'");
}

TEST(Tar, RefusesANameWithABackslash) {
  ExpectRefusal(TarFile("a\\b", ""), "header at byte 0: name 'a\\b' contains a backslash");
}

TEST(Tar, RefusesAnEmptyName) {
  ExpectRefusal(TarFile("", ""), "header at byte 0: name '' is empty");
}

TEST(Tar, RefusesTwoMembersOfOneName) {
  ExpectRefusal(TarFile("a", "1") + TarFile("b", "2") + TarFile("a", "3"), "duplicate member 'a'");
}

TEST(Tar, RefusesAMemberThatReachesBeyondTheFile) {
  ExpectRefusal(TarMember({.name = "a", .size = "00000001001"}, std::string(512, 'x')),
                "header at byte 0: 'a' has 513 bytes from byte 512 on, but the archive ends at "
                "byte 1024");
}

TEST(Tar, RefusesABinarySizeBeyondAllFiles) {
  ExpectRefusal(TarMember({.name = "a", .size = "\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff"s}, ""),
                "header at byte 0: 'a' has 18446744073709551615 bytes from byte 512 on, but the "
                "archive ends at byte 512");
}

TEST(Tar, RefusesASizeOfMoreThan64Bits) {
  ExpectRefusal(TarMember({.name = "a", .size = "\x80\0\0\1\0\0\0\0\0\0\0\0"s}, ""),
                "header at byte 0: its size is not a number");
}

TEST(Tar, RefusesASizeThatIsNoNumber) {
  ExpectRefusal(TarMember({.name = "a", .size = "00000000009"}, ""),
                "header at byte 0: its size is not a number");
}

TEST(Tar, RejectsALink) {
  const MemorySource source(TarMember({.name = "a", .type = '2', .size = "00000000777"}, "") +
                            TarFile("b", "2"));
  Budget budget(1 << 20);
  const auto members = tar::ReadDirectory(source, budget);
  ASSERT_EQ(members.size(), 2U);
  EXPECT_EQ(members[0].error, "is of type '2': a link or a device, which is not supported");
  EXPECT_EQ(members[1].error, "");
}

TEST(Tar, TakesDotsAtTheBeginningOfANameAway) {
  EXPECT_EQ(List(TarMember({.name = "./", .type = '5'}, "") + TarFile("././a", "1")),
            (Strings{"a: 1"}));
}

TEST(Tar, RefusesASparseMemberOfGnu) {
  ExpectRefusal(TarMember({.name = "a", .type = 'S'}, ""),
                "header at byte 0: 'a' is sparse, which is not supported");
}

TEST(Tar, RefusesASparseMemberOfPax) {
  ExpectRefusal(TarMember({.name = "x", .type = 'x'}, "22 GNU.sparse.major=1\n") + TarFile("a", ""),
                "header at byte 0: unsupported sparse member");
}

TEST(Tar, RefusesANameForAllMembers) {
  ExpectRefusal(TarMember({.name = "g", .type = 'g'}, "10 path=a\n") + TarFile("b", ""),
                "header at byte 0: unsupported global name or size");
}

TEST(Tar, RefusesAPaxRecordOfAnotherLength) {
  ExpectRefusal(TarMember({.name = "x", .type = 'x'}, "99 path=a\n") + TarFile("b", ""),
                "header at byte 0: invalid length of a pax record");
}

TEST(Tar, RefusesALongExtension) {
  ExpectRefusal(TarMember({.name = "x", .type = 'L'}, std::string(65537, 'a')) + TarFile("b", ""),
                "header at byte 0: extension of 65537 bytes (maximum 65536)");
}

TEST(Tar, RefusesAWrongChecksum) {
  std::string archive = TarFile("a", "1") + TarFile("b", "2");
  archive[1024] = 'c';
  ExpectRefusal(archive, "header at byte 1024: checksum mismatch");
}

TEST(Tar, RefusesAHeaderThatIsCut) {
  ExpectRefusal(TarFile("a", "1") + TarFile("b", "2").substr(0, 511),
                "header at byte 1024: it needs 512 bytes, but only 511 are left");
}

std::string FirstNameOf(const std::string& head) {
  return tar::FirstName(std::as_bytes(std::span(head)));
}

TEST(Tar, ReturnsTheFirstNameAfterExtensions) {
  EXPECT_EQ(FirstNameOf(TarMember({.name = "././@PaxHeader", .type = 'x'}, "9 atime=\n") +
                        TarFile("sys_info", "")),
            "sys_info");
}

TEST(Tar, ReturnsNoFirstNameOfAnotherFile) { EXPECT_EQ(FirstNameOf(std::string(4096, 'x')), ""); }

std::string Int32(int32_t number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

std::string Int64(int64_t number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

std::string Count(int64_t count) { return PickleWriter().Int(count).Finish(); }

// (first, second, torch.<type>), as tensors and storages are described.
std::string Described(const PickleWriter& keys, std::string_view type) {
  const std::string opcodes = keys.Finish();
  return opcodes.substr(0, opcodes.size() - 1) +
         PickleWriter().Global("torch", type).Raw("\x87").Finish().substr(2);
}

std::string StorageTable(int64_t elements, const std::string& bytes, const std::string& views) {
  return Count(1) + Described(PickleWriter().Int(5).Text("cpu"), "ShortStorage") + Int64(elements) +
         bytes + views;
}

std::string TensorEntry(int64_t key, int64_t storage, int64_t size, int64_t offset) {
  return Described(PickleWriter().Int(key).Int(storage), "ShortTensor") + Int32(1) + Int32(0) +
         Int64(size) + Int64(1) + Int64(offset);
}

const std::string kNoViews = "].";

Checkpoint ReadTar(const std::string& storages, const std::string& tensors,
                   const PickleWriter& objects) {
  const std::string system = PickleWriter()
                                 .EmptyDict()
                                 .Text("protocol_version")
                                 .Int(1000)
                                 .SetItem()
                                 .Text("little_endian")
                                 .Bool(true)
                                 .SetItem()
                                 .Finish();
  return ReadCheckpoint(std::make_shared<MemorySource>(
      TarFile("sys_info", system) + TarFile("pickle", objects.Finish()) +
      TarFile("tensors", tensors) + TarFile("storages", storages) + kTarEnd));
}

TEST(TorchTar, ReadsATensor) {
  const Checkpoint checkpoint =
      ReadTar(StorageTable(3, "aabbcc", kNoViews), Count(1) + TensorEntry(8, 5, 2, 1),
              PickleWriter().EmptyDict().Text("w").Text("8").Raw("Q").SetItem());
  const Tensor& tensor = TensorAt(checkpoint, "w");
  EXPECT_EQ(checkpoint.format, "torch-tar");
  EXPECT_EQ(tensor.dtype, Dtype::kInt16);
  EXPECT_EQ(tensor.shape, (std::vector<uint64_t>{2}));
  EXPECT_EQ(ReadString(tensor.data), "bbcc");
  EXPECT_EQ(tensor.member, "storage 5");
  EXPECT_TRUE(tensor.is_in_file);
  EXPECT_THAT(checkpoint.annotations, testing::IsSupersetOf({Annotation{"protocol_version", "1000"},
                                                             Annotation{"little_endian", "true"}}));
}

TEST(TorchTar, ReadsATensorOfAStorageThatIsAViewOfAnother) {
  const std::string views =
      PickleWriter().EmptyList().Mark().Int(6).Int(5).Int(1).Int(2).Tuple().Append().Finish();
  const Checkpoint checkpoint =
      ReadTar(StorageTable(3, "aabbcc", views), Count(1) + TensorEntry(8, 6, 1, 1),
              PickleWriter().Text("8").Raw("Q"));
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "tensor").data), "cc");
}

TEST(TorchTar, ReadsAStorageByItself) {
  const Checkpoint checkpoint =
      ReadTar(StorageTable(3, "aabbcc", kNoViews), Count(0), PickleWriter().Text("5").Raw("Q"));
  EXPECT_EQ(ReadString(TensorAt(checkpoint, "tensor").data), "aabbcc");
}

TEST(TorchTar, ShowsATensorWithoutAStorageAsNone) {
  const std::string tensors = Count(1) + Described(PickleWriter().Int(8).None(), "FloatTensor") +
                              Int32(0) + Int32(0) + Int64(0);
  const Checkpoint checkpoint =
      ReadTar(StorageTable(3, "aabbcc", kNoViews), tensors, PickleWriter().Text("8").Raw("Q"));
  EXPECT_EQ(ValueAt(checkpoint, "value").json, "null");
}

TEST(TorchTar, TakesTheSourceCodeOfAModuleForItsClass) {
  PickleWriter objects;
  objects.Mark().Global("nets", "Net").None().None().Tuple().Raw("Q)\x81}").Text("w");
  objects.Text("5").Raw("Q").SetItem().Build();
  const Checkpoint checkpoint = ReadTar(StorageTable(3, "aabbcc", kNoViews), Count(0), objects);
  EXPECT_EQ(checkpoint.root.python_type, "nets.Net");
}

TEST(TorchTar, ReportsAnUnknownId) {
  EXPECT_THAT(
      [] {
        ReadTar(StorageTable(3, "aabbcc", kNoViews), Count(0), PickleWriter().Text("9").Raw("Q"));
      },
      ThrowsMessage<Error>(
          "memory: pickle: tensor 'tensor': its persistent id '9' is not a storage"));
}

TEST(TorchTar, ReportsAMissingMember) {
  EXPECT_THAT(
      [] { ReadCheckpoint(std::make_shared<MemorySource>(TarFile("sys_info", "N.") + kTarEnd)); },
      ThrowsMessage<Error>("memory: member 'storages' not found in the archive"));
}

TEST(TorchTar, ReportsAStorageBeyondItsMember) {
  EXPECT_THAT(
      [] { ReadTar(StorageTable(3, "aa", ""), Count(0), PickleWriter().None()); },
      ThrowsMessage<Error>("memory: storages: storage 5 at byte 63 needs 6 bytes, but only 2 are "
                           "left"));
}

TEST(TorchTar, ReportsMissingStorages) {
  EXPECT_THAT([] { ReadTar(Count(int64_t{1} << 62), Count(0), PickleWriter().None()); },
              ThrowsMessage<Error>(
                  "memory: storages: storage at byte 13: unexpected end of pickle at byte 0: "
                  "STOP is missing"));
}

TEST(TorchTar, RefusesAStorageOfMoreBytesThanThereCanBe) {
  EXPECT_THAT(
      [] {
        ReadTar(StorageTable(int64_t{1} << 63U >> 1U, "", ""), Count(0), PickleWriter().None());
      },
      ThrowsMessage<Error>("memory: storages: storage 5 has -4611686018427387904 elements"));
}

TEST(TorchTar, RefusesATensorOfTooManyDimensions) {
  const std::string tensors =
      Count(1) + Described(PickleWriter().Int(8).Int(5), "ShortTensor") + Int32(65) + Int32(0);
  EXPECT_THAT([&] { ReadTar(StorageTable(1, "aa", kNoViews), tensors, PickleWriter().None()); },
              ThrowsMessage<Error>(
                  "memory: tensors: tensor 8: too many dimensions (found 65, maximum 64)"));
}

TEST(TorchTar, RefusesATensorOfAStorageThatIsNotThere) {
  EXPECT_THAT(
      [] {
        ReadTar(StorageTable(1, "aa", kNoViews), Count(1) + TensorEntry(8, 4, 1, 0),
                PickleWriter().None());
      },
      ThrowsMessage<Error>("memory: tensors: tensor 8: storage not found"));
}

TEST(TorchTar, ReportsATensorBeyondItsStorage) {
  EXPECT_THAT(
      [] {
        ReadTar(StorageTable(1, "aa", kNoViews), Count(1) + TensorEntry(8, 5, 2, 0),
                PickleWriter().Text("8").Raw("Q"));
      },
      ThrowsMessage<Error>("memory: pickle: tensor 'tensor': view out of range: 4 bytes from "
                           "element 0 on (storage 5 has 2 bytes)"));
}

}  // namespace
}  // namespace ckptfs
