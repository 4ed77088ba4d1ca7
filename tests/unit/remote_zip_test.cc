// Which bytes of a zip archive are read when each read may cost a round trip.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "parser/base/error.h"
#include "parser/format/archive/members.h"
#include "parser/io/simple_sources.h"
#include "tests/support/counting_source.h"
#include "tests/support/sources.h"
#include "tests/support/zip_writer.h"

namespace ckptfs {
namespace {

using testing::ThrowsMessage;

// So large that bytes between two of them were not fetched with the ends of the file.
constexpr uint64_t kLarge = 300'000;

// An archive with `middle` in the middle, whose local header is read late.
ZipWriter Around(std::string_view name, std::string_view data, const ZipEntry& entry = {}) {
  ZipWriter writer;
  writer.AddZeros("m/before", kLarge).Add(name, data, entry).AddZeros("m/behind", kLarge);
  return writer;
}

// The members of an archive that is far away.
class RemoteZip {
 public:
  explicit RemoteZip(ByteSourcePtr archive)
      : source_(std::make_shared<CountingSource>(std::move(archive), true)),
        budget_(Budget::ForFile(source_->size())),
        members_({source_, 0, source_->size()}, budget_, {}, std::make_shared<BlockCache>()) {}
  explicit RemoteZip(const ZipWriter& writer) : RemoteZip(writer.Source()) {}

  const zip::Member& Find(std::string_view name) const { return *members_.Find(name); }
  Record Open(std::string_view name) const { return members_.Open(Find(name), name); }
  std::string Read(std::string_view name) const { return ReadString(Open(name).data); }
  const CountingSource& source() const { return *source_; }

 private:
  std::shared_ptr<CountingSource> source_;
  Budget budget_;
  Members members_;
};

TEST(RemoteZip, LeavesHeadersUntilTheirMembersAreRead) {
  const RemoteZip zip(Around("m/a", "abcd"));
  EXPECT_TRUE(zip.Find("m/a").deferred_offset);
  EXPECT_EQ(zip.source().round_trips(), 2U);  // The beginning and the end.
  EXPECT_EQ(zip.Read("m/a"), "abcd");
  EXPECT_EQ(zip.source().round_trips(), 3U);
  EXPECT_EQ(zip.Read("m/a"), "abcd");
  EXPECT_EQ(zip.source().round_trips(), 3U);
}

TEST(RemoteZip, ReadsHeadersThatHaveComeAlong) {
  const RemoteZip zip(ZipWriter().Add("m/a", "abcd").AddZeros("m/b", kLarge).Add("m/c", "ef"));
  EXPECT_FALSE(zip.Find("m/a").deferred_offset);
  EXPECT_FALSE(zip.Find("m/c").deferred_offset);
  EXPECT_EQ(zip.source().round_trips(), 2U);
}

// Of an archive of torch.save, the end record and the directory are fetched, but no more of the
// tail.
TEST(RemoteZip, LeavesTheHeaderBeforeTheDirectoryIfItBeginsWithAPickle) {
  const RemoteZip zip(
      ZipWriter().Add("m/data.pkl", "abcd").AddZeros("m/b", kLarge).Add("m/c", "ef"));
  EXPECT_FALSE(zip.Find("m/data.pkl").deferred_offset);
  EXPECT_TRUE(zip.Find("m/c").deferred_offset);
  EXPECT_EQ(zip.Read("m/c"), "ef");
}

TEST(RemoteZip, ExpectsDataWhereTheyAre) {
  const RemoteZip zip(Around("m/a", "abcd"));
  EXPECT_EQ(ReadString(zip.source(), zip.Find("m/a").data_offset, 4), "abcd");
}

TEST(RemoteZip, ExpectsDataWithoutADescriptorWhereTheyAre) {
  const RemoteZip zip(
      ZipWriter({.alignment = 0})
          .AddZeros("m/before", kLarge, {.flags = 0, .has_descriptor = false})
          .Add("m/a", "abcd",
               {.flags = 0, .has_descriptor = false, .local_extra = std::string("\7\7\1\0x", 5)})
          .AddZeros("m/behind", kLarge, {.flags = 0, .has_descriptor = false}));
  EXPECT_TRUE(zip.Find("m/a").deferred_offset);
  EXPECT_EQ(ReadString(zip.source(), zip.Find("m/a").data_offset, 4), "abcd");
}

// A flag announces a descriptor after the data, which is missing.
TEST(RemoteZip, ReadsDataThatAreNotWhereTheyWereExpected) {
  ZipWriter writer;
  writer.AddZeros("m/before", kLarge)
      .Add("m/a", "abcdefgh", {.has_descriptor = false})
      .AddZeros("m/behind", kLarge);
  const RemoteZip zip(writer);
  ASSERT_TRUE(zip.Find("m/a").deferred_offset);
  EXPECT_NE(ReadString(zip.source(), zip.Find("m/a").data_offset, 8), "abcdefgh");
  EXPECT_EQ(zip.Read("m/a"), "abcdefgh");
}

TEST(RemoteZip, ReadsAllHeadersIfOneThatHasComeAlongIsUnexpected) {
  const RemoteZip zip(ZipWriter()
                          .Add("m/first", "abcdefgh", {.has_descriptor = false})
                          .AddZeros("m/before", kLarge)
                          .Add("m/a", "abcd", {.has_descriptor = false})
                          .AddZeros("m/behind", kLarge));
  EXPECT_FALSE(zip.Find("m/a").deferred_offset);
  EXPECT_EQ(ReadString(zip.source(), zip.Find("m/a").data_offset, 4), "abcd");
}

TEST(RemoteZip, GivesTiedStoragesOneSource) {
  const RemoteZip zip(Around("m/a", "abcd"));
  EXPECT_EQ(zip.Open("m/a").data.source, zip.Open("m/a").data.source);
}

TEST(RemoteZip, ReturnsTheOffsetOfStoredData) {
  const RemoteZip zip(Around("m/a", "abcd"));
  const Record record = zip.Open("m/a");
  EXPECT_TRUE(record.is_in_file);
  EXPECT_EQ(record.data.offset, zip.Find("m/a").data_offset);
}

TEST(RemoteZip, DecodesAMemberWhoseHeaderIsReadLate) {
  ZipWriter writer;
  writer.AddZeros("m/before", kLarge)
      .AddDeflated("m/a", "abcdabcdabcdabcd")
      .AddZeros("m/behind", kLarge);
  const RemoteZip zip(writer);
  EXPECT_TRUE(zip.Find("m/a").deferred_offset);
  EXPECT_EQ(zip.Read("m/a"), "abcdabcdabcdabcd");
}

TEST(RemoteZip, ReportsAnErrorInALocalHeader) {
  const RemoteZip zip(Around("m/a", "abcd"));
  const Extent data = zip.Open("m/a").data;
  data.source->AdviseFile({.offset = data.offset, .length = data.length});
  const ByteRange expected = zip.source().expected().at(0);
  EXPECT_EQ(expected.offset, zip.Find("m/a").deferred_offset->header);
  EXPECT_EQ(expected.offset + expected.length, data.offset + data.length);
}

TEST(RemoteZip, RefusesAMemberOfAnotherNameInItsLocalHeader) {
  const RemoteZip zip(Around("m/a", "abcd", {.local_name = "m/b"}));
  EXPECT_THAT([&] { zip.Read("m/a"); },
              ThrowsMessage<Error>("local header at byte 300080: name is 'm/b', but 'm/a' in the "
                                   "central directory"));
  EXPECT_EQ(zip.Read("m/behind"), std::string(kLarge, '\0'));
}

TEST(RemoteZip, RefusesAMemberWithANameOfAnotherLengthInItsLocalHeader) {
  const RemoteZip zip(Around("m/a", "abcd", {.local_name = "m/ab"}));
  EXPECT_THAT([&] { zip.Read("m/a"); },
              ThrowsMessage<Error>("local header at byte 300080: name has 4 bytes, but 'm/a' has 3 "
                                   "in the central directory"));
}

TEST(RemoteZip, RefusesAMemberWithoutALocalHeader) {
  const RemoteZip zip(Around("m/a", "abcd", {.local_signature = "PK\7\7"}));
  EXPECT_THAT([&] { zip.Read("m/a"); },
              ThrowsMessage<Error>("member 'm/a' has no local header at byte 300080"));
  EXPECT_EQ(zip.Read("m/before"), std::string(kLarge, '\0'));
}

// The length of its extra fields is so large that the data would begin within the next member.
TEST(RemoteZip, RefusesAMemberThatWouldReachIntoTheNextOne) {
  const ByteSourcePtr right = Around("m/a", "abcd").Source();
  std::string archive = ReadString(*right, 0, right->size());
  archive.replace(300'080 + 28, 2, "\xf0\x00", 2);
  const RemoteZip zip(std::make_shared<MemorySource>(archive));
  EXPECT_THAT([&] { zip.Read("m/a"); },
              ThrowsMessage<Error>("local header at byte 300080: 4 bytes of member 'm/a' begin at "
                                   "byte 300353, but the next header is at byte 300180"));
}

TEST(RemoteZip, RefusesAnArchiveWhoseMembersOverlap) {
  const ZipWriter writer = Around("m/a", "abcd", {.size = 200'000, .compressed_size = 200'000});
  EXPECT_THAT([&] { RemoteZip{writer}; },
              ThrowsMessage<Error>("zip: local header at byte 300180: member 'm/behind' begins "
                                   "before 'm/a' ends at byte 500160"));
}

TEST(RemoteZip, RefusesAnArchiveThatHasOneHeaderForTwoMembers) {
  const ZipWriter writer = Around("m/a", "abcd", {.header = 0});
  EXPECT_THAT([&] { RemoteZip{writer}; },
              ThrowsMessage<Error>("zip: local header at byte 0: name has 8 bytes, but 'm/a' has 3 "
                                   "in the central directory"));
}

TEST(RemoteZip, ReportsAMemberWithoutALocalHeader) {
  const RemoteZip zip(Around("m/a", "abcd", {.header = 1'000}));
  EXPECT_EQ(MessageOf(zip.Open("m/a").error), "m/a: has no local header at byte 1000");
  EXPECT_EQ(zip.Read("m/before"), std::string(kLarge, '\0'));
}

// An archive of many members, of which the first one is long.
ZipWriter ManyBehind(std::string_view name) {
  constexpr int kMembers = 5'000;
  ZipWriter writer;
  writer.Add(name, std::string(kLarge, 'p'));
  for (int i = 0; i < kMembers; ++i) writer.Add(fmt::format("m/data/{}", i), "abcd");
  return writer;
}

TEST(RemoteZip, FetchesThePickleOfManyTensorsWithTheDirectory) {
  const RemoteZip zip(ManyBehind("m/data.pkl"));
  const uint64_t round_trips = zip.source().round_trips();
  EXPECT_EQ(zip.Read("m/data.pkl"), std::string(kLarge, 'p'));
  EXPECT_EQ(zip.source().round_trips(), round_trips);
}

TEST(RemoteZip, FetchesNoOtherMemberWithTheDirectory) {
  const RemoteZip zip(ManyBehind("m/array.npy"));
  const uint64_t round_trips = zip.source().round_trips();
  EXPECT_EQ(zip.Read("m/array.npy"), std::string(kLarge, 'p'));
  EXPECT_GT(zip.source().round_trips(), round_trips);
}

TEST(RemoteZip, ReadsAHeaderWithTheLongestName) {
  const std::string name = "m/" + std::string(60'000, 'n');
  const RemoteZip zip(Around(name, "abcd"));
  EXPECT_EQ(zip.Read(name), "abcd");
}

}  // namespace
}  // namespace ckptfs
