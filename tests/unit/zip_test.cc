#include "parser/codec/zip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/io/simple_sources.h"
#include "tests/support/sources.h"
#include "tests/support/zip_writer.h"

namespace ckptfs::zip {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Directory Read(const ByteSource& source) {
  Budget budget = Budget::ForFile(source.size());
  return ReadDirectory(source, budget);
}

Directory Read(const std::string& archive) { return Read(MemorySource(archive)); }

// Returns "name: bytes" of each member as they are stored, or "name: error".
std::vector<std::string> Contents(const std::string& archive) {
  const MemorySource source(archive);
  const Directory directory = Read(source);
  std::vector<std::string> contents;
  for (const Member& member : directory.members()) {
    contents.push_back(fmt::format(
        "{}: {}", member.name,
        member.error.empty() ? ReadString(source, member.data_offset, member.compressed_size)
                             : member.error));
  }
  return contents;
}

// Returns why an archive is refused: "EBADMSG: the message".
std::string Refusal(const std::string& archive) {
  try {
    Read(archive);
  } catch (const Error& e) {
    return fmt::format("{}: {}", strerrorname_np(e.code()), e.what());
  }
  return "not refused";
}

// Returns why the names of a readable archive are rejected as paths.
std::string RefusalOfPaths(const std::string& archive) {
  const Directory directory = Read(archive);
  try {
    directory.CheckPaths();
  } catch (const Error& e) {
    return fmt::format("{}: {}", strerrorname_np(e.code()), e.what());
  }
  return "not refused";
}

std::string RefusalOfName(std::string_view name) {
  return RefusalOfPaths(ZipWriter().Add(name, "abcd").Finish());
}

std::string RefusalOfEntry(const ZipEntry& entry) {
  return Refusal(ZipWriter().Add("m/a", "abcd", entry).Finish());
}

std::string RefusalOfArchive(const ZipArchive& archive) {
  return Refusal(ZipWriter(archive).Add("m/a", "abcd").Finish());
}

// The error of the member, while the one beside it can be read.
std::string ErrorOfMember(const ZipEntry& entry) {
  const std::string archive =
      ZipWriter().Add("m/bad", "xxxx", entry).Add("m/good", "abcd").Finish();
  const Directory directory = Read(archive);
  const Member* const good = directory.Find("m/good");
  EXPECT_EQ(archive.substr(good->data_offset, good->size), "abcd");
  return std::string(directory.Find("m/bad")->error);
}

// Used throughout: a member "m/a" of 4 bytes has its header at byte 0, its data at byte 64
// and its descriptor at byte 68; the central directory is at byte 84, the zip64 end record at byte
// 133, its locator at byte 189 and the end record at byte 209; the whole has 231 bytes.
std::string Small() { return ZipWriter().Add("m/a", "abcd").Finish(); }

TEST(Zip, ReturnsTheExtentOfAMember) {
  const Directory directory = Read(Small());
  ASSERT_EQ(directory.members().size(), 1U);
  const Member& member = directory.members()[0];
  EXPECT_EQ(member.name, "m/a");
  EXPECT_EQ(member.data_offset, 64U);
  EXPECT_EQ(member.compressed_size, 4U);
  EXPECT_EQ(member.size, 4U);
  EXPECT_EQ(member.crc, Crc("abcd"));
  EXPECT_EQ(member.method, Method::kStored);
  EXPECT_EQ(member.error, "");
}

TEST(Zip, FindsMembersByTheirExactName) {
  const std::string archive = ZipWriter().Add("m/a", "1").Add("m/b", "2").Finish();
  const Directory directory = Read(archive);
  EXPECT_EQ(directory.Find("m/a"), &directory.members()[0]);
  EXPECT_EQ(directory.Find("m/b"), &directory.members()[1]);
  EXPECT_EQ(directory.Find("m/c"), nullptr);
  EXPECT_EQ(directory.Find("M/A"), nullptr);
  EXPECT_EQ(directory.Find(""), nullptr);
}

TEST(Zip, GoesOnWorkingWhenMoved) {
  Directory directory = Read(ZipWriter().Add("m/a", "1", {.method = 93}).Finish());
  const Directory moved = std::move(directory);
  ASSERT_NE(moved.Find("m/a"), nullptr);
  EXPECT_EQ(moved.Find("m/a")->name, "m/a");
  EXPECT_EQ(
      moved.Find("m/a")->error,
      "unsupported compression method 93 (supported: 0 stored, 8 deflate, 12 bzip2, 14 LZMA)");
}

TEST(Zip, ReadsMembersInAnyOrderAndKeepsThatOfTheDirectory) {
  const std::string archive = ZipWriter()
                                  .Add("m/b", "1111", {.local_name = "m/a", .header = 84})
                                  .Add("m/a", "2222", {.local_name = "m/b", .header = 0})
                                  .Finish();
  EXPECT_THAT(Contents(archive), ElementsAre("m/b: 2222", "m/a: 1111"));
}

// Whose headers were once read into less memory than they have.
TEST(Zip, ReadsMembersWithTheLongestNames) {
  const std::string name = "m/" + std::string(65'000, 'x');
  EXPECT_THAT(Contents(ZipWriter().Add(name, "abcd").Add("m/b", "efgh").Finish()),
              ElementsAre(name + ": abcd", "m/b: efgh"));
}

TEST(Zip, ReadsMembersWithoutBytes) {
  EXPECT_THAT(Contents(ZipWriter().Add("m/a", "").Add("m/b", "").Finish()),
              ElementsAre("m/a: ", "m/b: "));
}

TEST(Zip, ReadsAnArchiveWithoutMembers) {
  EXPECT_THAT(Contents(ZipWriter().Finish()), IsEmpty());
  EXPECT_THAT(Contents(ZipWriter({.has_zip64_end = false}).Finish()), IsEmpty());
}

TEST(Zip, ReadsArchivesWithoutZip64Records) {
  EXPECT_THAT(Contents(ZipWriter({.has_zip64_end = false}).Add("m/a", "abcd").Finish()),
              ElementsAre("m/a: abcd"));
}

TEST(Zip, ReadsMembersThatAreNotAligned) {
  EXPECT_THAT(Contents(ZipWriter({.alignment = 0}).Add("m/a", "12").Add("m/b", "345").Finish()),
              ElementsAre("m/a: 12", "m/b: 345"));
}

TEST(Zip, ReadsMembersOfAnyAlignment) {
  EXPECT_THAT(Contents(ZipWriter({.alignment = 100}).Add("m/a", "12").Add("m/b", "345").Finish()),
              ElementsAre("m/a: 12", "m/b: 345"));
  EXPECT_THAT(Contents(ZipWriter({.alignment = 4096}).Add("m/a", "12").Add("m/b", "345").Finish()),
              ElementsAre("m/a: 12", "m/b: 345"));
}

TEST(Zip, ReadsMembersWithoutDescriptors) {
  const ZipEntry entry = {.flags = 0x0800, .has_descriptor = false};
  EXPECT_THAT(Contents(ZipWriter().Add("m/a", "12", entry).Add("m/b", "345", entry).Finish()),
              ElementsAre("m/a: 12", "m/b: 345"));
}

TEST(Zip, ReadsMembersWithoutCrc) {
  const Directory directory = Read(ZipWriter().Add("m/a", "abcd", {.crc = 0}).Finish());
  EXPECT_EQ(directory.members()[0].crc, 0U);
  EXPECT_EQ(directory.members()[0].error, "");
}

TEST(Zip, ReturnsBothSizesOfDeflatedMembers) {
  const std::string data(1000, 'x');
  const Directory directory = Read(ZipWriter().AddDeflated("m/a", data).Finish());
  const Member& member = directory.members()[0];
  EXPECT_EQ(member.method, Method::kDeflated);
  EXPECT_EQ(member.compressed_size, Deflate(data).size());
  EXPECT_EQ(member.size, 1000U);
}

TEST(Zip, LeavesOutDirectories) {
  EXPECT_THAT(Contents(ZipWriter().Add("m/", "").Add("m/a", "abcd").Finish()),
              ElementsAre("m/a: abcd"));
}

TEST(Zip, ReadsMoreThan65535Members) {
  ZipWriter writer;
  for (int i = 0; i < 70'000; ++i) writer.Add(fmt::format("m/data/{}", i), std::to_string(i));
  const std::string archive = writer.Finish();
  const Directory directory = Read(archive);
  EXPECT_EQ(directory.members().size(), 70'000U);
  const Member* const last = directory.Find("m/data/69999");
  ASSERT_NE(last, nullptr);
  EXPECT_EQ(archive.substr(last->data_offset, last->size), "69999");
}

TEST(Zip, Reads65535MembersWithoutZip64Records) {
  ZipWriter writer({.alignment = 0, .has_zip64_end = false});
  for (int i = 0; i < 65'535; ++i) writer.Add(fmt::format("m/{}", i), "");
  EXPECT_EQ(Read(writer.Finish()).members().size(), 65'535U);
}

TEST(Zip, ReadsLargeArchivesAsTorchWritesThem) {
  constexpr uint64_t kLarge = uint64_t{5} << 30U;
  const auto source = ZipWriter()
                          .AddZeros("m/large", kLarge)
                          .Add("m/small", "abcd")
                          .AddZeros("m/large too", kLarge)
                          .Source();
  const Directory directory = Read(*source);
  EXPECT_EQ(directory.Find("m/large")->data_offset, 64U);
  EXPECT_EQ(directory.Find("m/large")->size, kLarge);
  const Member* const small = directory.Find("m/small");
  EXPECT_GT(small->data_offset, kLarge);
  EXPECT_EQ(ReadString(*source, small->data_offset, small->size), "abcd");
  EXPECT_EQ(directory.Find("m/large too")->size, kLarge);
  EXPECT_GT(directory.Find("m/large too")->data_offset, kLarge);
}

TEST(Zip, ReadsMembersWithZip64BlocksThatWereNotNeeded) {
  EXPECT_THAT(Contents(ZipWriter().Add("m/a", "abcd", {.is_zip64 = true}).Finish()),
              ElementsAre("m/a: abcd"));
  const std::string both_sizes("\1\0\20\0\4\0\0\0\0\0\0\0\4\0\0\0\0\0\0\0", 20);
  EXPECT_THAT(Contents(ZipWriter().Add("m/a", "abcd", {.central_extra = both_sizes}).Finish()),
              ElementsAre("m/a: abcd"));
}

TEST(Zip, IgnoresOtherExtraFieldsAndPaddingBehindThem) {
  const ZipEntry entry = {.local_extra = std::string("dt\3\0abc", 7),
                          .central_extra = std::string("dt\3\0abc\0\0\0", 10)};
  EXPECT_THAT(Contents(ZipWriter().Add("m/a", "abcd", entry).Finish()), ElementsAre("m/a: abcd"));
}

TEST(Zip, IgnoresCommentsOfMembers) {
  EXPECT_THAT(Contents(ZipWriter().Add("m/a", "1", {.comment = "x"}).Add("m/b", "2").Finish()),
              ElementsAre("m/a: 1", "m/b: 2"));
}

TEST(Zip, ReadsAnArchiveBehindOtherBytes) {
  EXPECT_THAT(Contents(ZipWriter({.prefix = "#!/bin/sh\n"}).Add("m/a", "abcd").Finish()),
              ElementsAre("m/a: abcd"));
  EXPECT_THAT(
      Contents(
          ZipWriter({.prefix = "#!/bin/sh\n", .has_zip64_end = false}).Add("m/a", "abcd").Finish()),
      ElementsAre("m/a: abcd"));
}

TEST(Zip, ReadsAnArchiveWhoseOffsetsCountTheBytesBeforeIt) {
  EXPECT_THAT(
      Contents(
          ZipWriter({.prefix = "#!/bin/sh\n", .counts_prefix = true}).Add("m/a", "abcd").Finish()),
      ElementsAre("m/a: abcd"));
}

TEST(Zip, ReadsAnArchiveBeforeOtherBytes) {
  EXPECT_THAT(Contents(Small() + std::string(60'000, '\0')), ElementsAre("m/a: abcd"));
}

TEST(Zip, ReadsAnArchiveWithAComment) {
  EXPECT_THAT(Contents(ZipWriter({.comment = "comment"}).Add("m/a", "abcd").Finish()),
              ElementsAre("m/a: abcd"));
}

TEST(Zip, ReadsAnArchiveWithTheLongestComment) {
  EXPECT_THAT(
      Contents(ZipWriter({.comment = std::string(0xFFFF, 'x')}).Add("m/a", "abcd").Finish()),
      ElementsAre("m/a: abcd"));
}

TEST(Zip, IsNotMisledByAnEndRecordInTheComment) {
  const std::string other = "PK\5\6" + std::string(18, '\0') + "x";
  EXPECT_THAT(Contents(ZipWriter({.comment = other}).Add("m/a", "abcd").Finish()),
              ElementsAre("m/a: abcd"));
}

TEST(Zip, ReadsTheOuterArchiveIfAMemberIsAnArchive) {
  EXPECT_THAT(Contents(ZipWriter().Add("n/b", Small()).Finish()), ElementsAre("n/b: " + Small()));
}

TEST(Zip, KnowsAnEndRecordWhenItSeesOne) {
  const std::string archive = Small();
  const auto bytes = std::as_bytes(std::span(archive));
  EXPECT_TRUE(HasEndRecord(bytes));
  EXPECT_TRUE(HasEndRecord(bytes.last(22)));
  EXPECT_FALSE(HasEndRecord(bytes.last(21)));
  EXPECT_FALSE(HasEndRecord(bytes.first(230)));
  EXPECT_FALSE(HasEndRecord({}));
}

TEST(Zip, LosesOneMemberIfThatIsEncrypted) {
  constexpr auto* kEncrypted = "unsupported zip encryption";
  EXPECT_EQ(ErrorOfMember({.flags = 0x0809}), kEncrypted);
  EXPECT_EQ(ErrorOfMember({.flags = 0x0848}), kEncrypted);
  EXPECT_EQ(ErrorOfMember({.flags = 0x2808}), kEncrypted);
  EXPECT_EQ(ErrorOfMember({.flags = 0x0809, .size = 2}), kEncrypted);
}

TEST(Zip, LosesOneMemberIfThatIsAPatch) {
  EXPECT_EQ(ErrorOfMember({.flags = 0x0828}), "unsupported patch to another file");
}

TEST(Zip, LosesOneMemberIfItsMethodIsUnknown) {
  EXPECT_EQ(
      ErrorOfMember({.method = 95}),
      "unsupported compression method 95 (supported: 0 stored, 8 deflate, 12 bzip2, 14 LZMA)");
}

TEST(Zip, LosesOneMemberIfItsLocalHeaderIsBroken) {
  EXPECT_EQ(ErrorOfMember({.local_signature = "PK\3\5"}), "has no local header at byte 0");
}

TEST(Zip, RefusesATruncatedFile) {
  EXPECT_EQ(Refusal(Small().substr(0, 230)),
            "EBADMSG: no end record in the last 230 bytes: the file is probably truncated");
  EXPECT_EQ(Refusal(std::string(100'000, 'x')),
            "EBADMSG: no end record in the last 65557 bytes: the file is probably truncated");
  EXPECT_EQ(Refusal(""),
            "EBADMSG: no end record in the last 0 bytes: the file is probably truncated");
}

TEST(Zip, RefusesATruncatedFileThatEndsInAnotherArchive) {
  EXPECT_EQ(
      Refusal(std::string(100, 'x') + Small() + "PK\7\10"),
      "EBADMSG: end record at byte 309: its archive begins at byte 100 and 4 bytes follow it: "
      "the file is probably truncated");
}

TEST(Zip, RefusesADirectoryBeyondTheFile) {
  EXPECT_EQ(
      RefusalOfArchive({.directory = 85}),
      "EBADMSG: end record at byte 209: central directory of 49 bytes at byte 85, but it must "
      "end by byte 133");
  EXPECT_EQ(RefusalOfArchive({.directory_size = 134}),
            "EBADMSG: end record at byte 209: central directory of 134 bytes at byte 84, but it "
            "must end by byte 133");
  EXPECT_EQ(RefusalOfArchive({.directory_size = 0xFFFFFFFFFFFFFFFF, .directory = 0xFFFFFFFF}),
            "EBADMSG: end record at byte 209: central directory of 18446744073709551615 bytes at "
            "byte 4294967295, but it must end by byte 133");
}

TEST(Zip, RefusesMoreEntriesThanCanBe) {
  EXPECT_EQ(RefusalOfArchive({.entries = 0xFFFFFFFFFFFFFFFF}),
            "EBADMSG: end record at byte 209: central directory of 49 bytes has "
            "18446744073709551615 entries, but each needs at least 46 bytes");
}

TEST(Zip, RefusesMoreEntriesThanThereAre) {
  const std::string long_name(60, 'x');
  EXPECT_EQ(Refusal(ZipWriter({.entries = 2}).Add(long_name, "abcd").Finish()),
            "EBADMSG: central directory at byte 254: signature needs 4 bytes, but only 0 are left");
}

TEST(Zip, RefusesFewerEntriesThanThereAre) {
  EXPECT_EQ(RefusalOfArchive({.entries = 0}),
            "EBADMSG: central directory at byte 84: 49 bytes follow the last of its 0 entries");
}

TEST(Zip, RefusesEndRecordsThatDisagree) {
  EXPECT_EQ(RefusalOfArchive({.zip64_entries = 2}),
            "EBADMSG: end record at byte 209: number of entries on this disk is 1, but 2 in the "
            "zip64 end record");
}

TEST(Zip, RefusesEntriesOnAnotherDisk) {
  EXPECT_EQ(RefusalOfArchive({.entries_here = 0}),
            "EBADMSG: end record at byte 209: 1 entries in all, but 0 on the only disk");
}

TEST(Zip, RefusesArchivesInSeveralParts) {
  constexpr auto* kParts = "EOPNOTSUPP: unsupported multi-part archive";
  EXPECT_EQ(RefusalOfArchive({.disk = 1}), kParts);
  EXPECT_EQ(RefusalOfArchive({.has_zip64_end = false, .disk = 1}), kParts);
  EXPECT_EQ(RefusalOfEntry({.disk = 1}), kParts);
  EXPECT_EQ(RefusalOfArchive({.disks = 2}),
            "EOPNOTSUPP: unsupported multi-part archive of 2 parts");
}

TEST(Zip, RefusesALocatorThatPointsNowhere) {
  std::string archive = Small();
  archive[133] = 'X';
  EXPECT_EQ(
      Refusal(archive),
      "EBADMSG: zip64 locator at byte 189: the zip64 end record should be at byte 133 and end "
      "here, but is not there");
  EXPECT_EQ(
      RefusalOfArchive({.zip64_end = 134}),
      "EBADMSG: zip64 locator at byte 189: the zip64 end record should be at byte 134 and end "
      "here, but is not there");
}

TEST(Zip, RefusesAnArchiveThatBeginsInTwoPlaces) {
  EXPECT_EQ(RefusalOfArchive({.zip64_end = 100}),
            "EBADMSG: end record at byte 209: the archive begins at byte 0 going by the central "
            "directory, but at byte 33 going by the zip64 locator");
}

TEST(Zip, RejectsAMalformedEntry) {
  std::string archive = Small();
  archive[84] = 'X';
  EXPECT_EQ(Refusal(archive),
            "EBADMSG: central directory at byte 84: signature 0x02014b58, but an entry has "
            "0x02014b50");
}

TEST(Zip, RefusesANameThatLeavesTheDirectory) {
  std::string archive = Small();
  archive[84 + 28] = 120;
  EXPECT_EQ(Refusal(archive),
            "EBADMSG: central directory at byte 130: name needs 120 bytes, but only 3 are left");
}

TEST(Zip, RefusesExtraFieldsThatAreTooShort) {
  EXPECT_EQ(RefusalOfEntry({.central_extra = std::string("FB\5\0abcd", 8)}),
            "EBADMSG: extra fields at byte 137: field needs 5 bytes, but only 4 are left");
}

TEST(Zip, RefusesAZip64BlockThatIsTooShort) {
  EXPECT_EQ(RefusalOfEntry({.size = 0xFFFFFFFF, .central_extra = std::string("\1\0\4\0abcd", 8)}),
            "EBADMSG: zip64 block at byte 137: size needs 8 bytes, but only 4 are left");
}

TEST(Zip, RefusesAZip64BlockThatDisagrees) {
  const std::string both_sizes("\1\0\20\0\4\0\0\0\0\0\0\0\5\0\0\0\0\0\0\0", 20);
  EXPECT_EQ(RefusalOfEntry({.central_extra = both_sizes}),
            "EBADMSG: zip64 block at byte 145: compressed size is 5, but 4 in its entry");
}

TEST(Zip, RefusesASecondZip64Block) {
  EXPECT_EQ(RefusalOfEntry({.central_extra = std::string("\1\0\0\0\1\0\0\0", 8)}),
            "EBADMSG: extra fields at byte 137: a second zip64 block");
}

TEST(Zip, RefusesBadNames) {
  EXPECT_EQ(RefusalOfName(""), "EBADMSG: central directory at byte 84: name '' is empty");
  EXPECT_EQ(RefusalOfName(std::string_view("a\0b", 3)),
            "EBADMSG: central directory at byte 84: name 'a?b' contains a NUL");
  EXPECT_EQ(RefusalOfName("a\\b"),
            "EBADMSG: central directory at byte 84: name 'a\\b' contains a backslash");
  EXPECT_EQ(RefusalOfName("/a"),
            "EBADMSG: central directory at byte 84: name '/a' begins with a slash");
  EXPECT_EQ(RefusalOfName("a//b"),
            "EBADMSG: central directory at byte 84: name 'a//b' has an empty part");
  EXPECT_EQ(RefusalOfName("a/.."),
            "EBADMSG: central directory at byte 84: name 'a/..' has a part that is '.' or '..'");
  EXPECT_EQ(RefusalOfName("./a"),
            "EBADMSG: central directory at byte 84: name './a' has a part that is '.' or '..'");
}

TEST(Zip, AcceptsUnusualNames) {
  EXPECT_THAT(Contents(ZipWriter().Add("a/...", "1").Add("..b/ ", "2").Add("\xE9", "3").Finish()),
              ElementsAre("a/...: 1", "..b/ : 2", "\xE9: 3"));
}

TEST(Zip, RefusesNamesBeyondPathMax) {
  EXPECT_EQ(Refusal(ZipWriter().Add(std::string(4096, 'x'), "").Finish()), "not refused");
  EXPECT_EQ(RefusalOfPaths(ZipWriter().Add(std::string(4097, 'x'), "").Finish()),
            "EFBIG: central directory at byte 4160: name of 4097 bytes (maximum 4096)");
}

TEST(Zip, RefusesAMemberThatLeavesTheFile) {
  EXPECT_EQ(RefusalOfEntry({.size = 1000, .compressed_size = 1000}),
            "EBADMSG: central directory at byte 84: member 'm/a' of 1000 bytes at byte 0 does not "
            "end before the central directory, which is at byte 84");
  EXPECT_EQ(
      RefusalOfEntry({.header = 85}),
      "EBADMSG: central directory at byte 84: member 'm/a' of 4 bytes at byte 85 does not end "
      "before the central directory, which is at byte 84");
  EXPECT_EQ(RefusalOfEntry({.header = 0xFFFFFFFFFFFFFFFF}),
            "EBADMSG: central directory at byte 84: member 'm/a' of 4 bytes at byte "
            "18446744073709551615 does not end before the central directory, which is at byte 84");
}

TEST(Zip, RefusesAMemberThatRunsIntoTheDirectory) {
  EXPECT_EQ(RefusalOfEntry({.size = 21, .compressed_size = 21}),
            "EBADMSG: local header at byte 0: 21 bytes of member 'm/a' begin at byte 64, but the "
            "central directory is at byte 84");
}

TEST(Zip, RefusesAStoredMemberOfTwoSizes) {
  EXPECT_EQ(RefusalOfEntry({.size = 5}),
            "EBADMSG: central directory at byte 84: member 'm/a' has 5 bytes, but is stored in 4");
}

TEST(Zip, LosesACompressedMemberOfAnImpossibleSize) {
  EXPECT_EQ(ErrorOfMember({.method = 8, .size = 5160}), "");
  EXPECT_EQ(ErrorOfMember({.method = 8, .size = 5161}),
            "claims 5161 bytes, but 4 compressed bytes cannot decode to more than 5160");
  EXPECT_EQ(ErrorOfMember({.method = 12, .size = 46'620'000}), "");
  EXPECT_EQ(ErrorOfMember({.method = 12, .size = 46'620'001}),
            "claims 46620001 bytes, but 4 compressed bytes cannot decode to more than 46620000");
  EXPECT_EQ(ErrorOfMember({.method = 14, .size = 35'450}), "");
  EXPECT_EQ(ErrorOfMember({.method = 14, .size = 35'451}),
            "claims 35451 bytes, but 4 compressed bytes cannot decode to more than 35450");
}

TEST(Zip, RefusesMembersThatOverlap) {
  const ZipEntry longer = {.size = 21, .compressed_size = 21};
  EXPECT_EQ(Refusal(ZipWriter().Add("m/a", "abcd", longer).Add("m/b", "abcd").Finish()),
            "EBADMSG: local header at byte 84: member 'm/b' begins before 'm/a' ends at byte 85");
}

TEST(Zip, RefusesALocalHeaderInTheDataOfAnotherMember) {
  EXPECT_EQ(Refusal(ZipWriter().Add("n/b", Small()).Add("m/a", "efgh", {.header = 64}).Finish()),
            "EBADMSG: local header at byte 64: member 'm/a' begins before 'n/b' ends at byte 295");
}

TEST(Zip, RefusesTwoMembersOfOneName) {
  EXPECT_EQ(Refusal(ZipWriter().Add("m/a", "1").Add("m/b", "2").Add("m/a", "3").Finish()),
            "EBADMSG: central directory: duplicate member 'm/a'");
}

TEST(Zip, FindsEachOfTheMembersWhoseNamesDifferInCaseOnly) {
  const Directory directory = Read(ZipWriter().Add("A", "1").Add("a", "2").Finish());
  EXPECT_EQ(directory.Find("A"), &directory.members()[0]);
  EXPECT_EQ(directory.Find("a"), &directory.members()[1]);
}

TEST(Zip, FindsNamesThatAreNoPaths) {
  const Directory directory =
      Read(ZipWriter().Add("../up", "1").Add("", "2").Add("a\\b", "3").Finish());
  EXPECT_EQ(directory.Find("../up"), &directory.members()[0]);
  EXPECT_EQ(directory.Find(""), &directory.members()[1]);
  EXPECT_EQ(directory.Find("a\\b"), &directory.members()[2]);
}

TEST(Zip, RefusesPathsThatDifferInCaseOnly) {
  EXPECT_EQ(RefusalOfPaths(ZipWriter().Add("m/DATA.pkl", "1").Add("m/data.PKL", "2").Finish()),
            "EBADMSG: central directory: duplicate member 'm/DATA.pkl' (also as 'm/data.PKL')");
}

TEST(Zip, RefusesAMemberOfAnotherNameInItsLocalHeader) {
  EXPECT_EQ(RefusalOfEntry({.local_name = "m/b"}),
            "EBADMSG: local header at byte 0: name is 'm/b', but 'm/a' in the central directory");
  EXPECT_EQ(RefusalOfEntry({.local_name = "m/ab"}),
            "EBADMSG: local header at byte 0: name has 4 bytes, but 'm/a' has 3 in the central "
            "directory");
}

TEST(Zip, ChargesWhatItKeepsToTheBudget) {
  Budget budget(1 << 20U);
  ReadDirectory(MemorySource(Small()), budget);
  EXPECT_GT(budget.used(), 49U);
  EXPECT_LT(budget.used(), 300U);
}

// Counts what is read.
class CountingSource final : public ByteSource {
 public:
  explicit CountingSource(ByteSourcePtr origin) : origin_(std::move(origin)) {}

  std::string name() const override { return origin_->name(); }
  uint64_t size() const override { return origin_->size(); }
  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    ++reads_;
    bytes_ += buffer.size();
    origin_->ReadAt(offset, buffer);
  }

  uint64_t reads() const { return reads_; }
  uint64_t bytes() const { return bytes_; }

 private:
  const ByteSourcePtr origin_;
  mutable std::atomic<uint64_t> reads_ = 0;
  mutable std::atomic<uint64_t> bytes_ = 0;
};

TEST(Zip, RefusesADirectoryBeyondTheBudgetBeforeItReadsIt) {
  const CountingSource source(
      ZipWriter({.has_zip64_end = false, .directory_size = 200 << 20U, .directory = 0})
          .AddZeros("m/a", 200 << 20U)
          .Source());
  Budget budget(100 << 20U);
  EXPECT_THAT([&] { ReadDirectory(source, budget); },
              testing::ThrowsMessage<Error>(
                  "parsing needs more than 100 MiB of memory, the limit for a file of this size"));
  EXPECT_LT(source.bytes(), 66'000U);
}

TEST(Zip, ReadsTheHeadersOfSmallMembersTogether) {
  ZipWriter writer;
  for (int i = 0; i < 10'000; ++i) writer.Add(fmt::format("m/data/{}", i), "abcd");
  const CountingSource source(writer.Source());
  Read(source);
  EXPECT_LT(source.reads(), 110U);
}

TEST(Zip, ReadsNoDataOfLargeMembers) {
  ZipWriter writer;
  for (int i = 0; i < 100; ++i) writer.AddZeros(fmt::format("m/{}", i), 1'000'000);
  const CountingSource source(writer.Source());
  Read(source);
  EXPECT_LT(source.bytes(), 20'000U);
}

}  // namespace
}  // namespace ckptfs::zip
