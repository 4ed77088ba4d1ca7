#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <string>
#include <vector>

#include "parser/base/error.h"
#include "parser/io/folder.h"
#include "parser/source/s3/folder.h"

namespace ckptfs::s3 {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using testing::ThrowsMessage;
using testing::UnorderedElementsAre;

std::string Result(const std::string& content) {
  return R"(<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">)" +
         content + "</ListBucketResult>";
}

std::string File(const std::string& key) {
  return fmt::format("<Contents><Key>{}</Key><Size>1</Size></Contents>", key);
}

std::string Folder(const std::string& prefix) {
  return fmt::format("<CommonPrefixes><Prefix>{}</Prefix></CommonPrefixes>", prefix);
}

std::string Truncated(const std::string& next) {
  return fmt::format(
      "<IsTruncated>true</IsTruncated><NextContinuationToken>{}</NextContinuationToken>", next);
}

constexpr const char* kEncoded = "<EncodingType>url</EncodingType>";

// A server that answers with these pages, one after another.
class Server {
 public:
  explicit Server(std::vector<std::string> pages) : pages_(std::move(pages)) {}

  Listing List(std::string_view prefix) {
    return s3::List(prefix, [&](const Query& query) {
      queries_.push_back(query);
      return Result(pages_.at(queries_.size() - 1));
    });
  }

  const std::vector<Query>& queries() const { return queries_; }

 private:
  const std::vector<std::string> pages_;
  std::vector<Query> queries_;
};

TEST(S3Listing, HasFilesAndFoldersOfAPrefix) {
  Server server({File("d/b") + File("d/a") + Folder("d/y/") + Folder("d/x/")});
  const Listing listing = server.List("d/");
  EXPECT_THAT(listing.files, ElementsAre("a", "b"));
  EXPECT_THAT(listing.folders, ElementsAre("x", "y"));
}

TEST(S3Listing, HasNoEmptyObjectThatMarksAFolder) {
  const auto empty = [](const char* key) {
    return fmt::format("<Contents><Key>{}</Key><Size>0</Size></Contents>", key);
  };
  Server server({empty("d/x") + empty("d/y") + File("d/z") + Folder("d/x/") + Folder("d/z/")});
  const Listing listing = server.List("d/");
  EXPECT_THAT(listing.files, ElementsAre("y", "z"));
  EXPECT_THAT(listing.folders, ElementsAre("x", "z"));
  EXPECT_EQ(listing.versions.count("x"), 0U);
}

TEST(S3Listing, RequestsOneLevelBelowThePrefix) {
  Server server({""});
  server.List("d/");
  EXPECT_THAT(server.queries(),
              ElementsAre(UnorderedElementsAre(Pair("list-type", "2"), Pair("delimiter", "/"),
                                               Pair("encoding-type", "url"),
                                               Pair("max-keys", "250"), Pair("prefix", "d/"))));
}

TEST(S3Listing, ReadsAllPages) {
  Server server({File("a") + Truncated("t+/="), Truncated("u"), File("b")});
  EXPECT_THAT(server.List("").files, ElementsAre("a", "b"));
  ASSERT_EQ(server.queries().size(), 3U);
  EXPECT_THAT(server.queries()[1], Contains(Pair("continuation-token", "t+/=")));
  EXPECT_THAT(server.queries()[2], Contains(Pair("continuation-token", "u")));
}

TEST(S3Listing, HasNoDuplicates) {
  Server server({File("a") + Folder("x/") + Truncated("t"), File("a") + Folder("x/")});
  const Listing listing = server.List("");
  EXPECT_THAT(listing.files, ElementsAre("a"));
  EXPECT_THAT(listing.folders, ElementsAre("x"));
}

TEST(S3Listing, DecodesEncodedKeys) {
  Server server({kEncoded + File("d%2Fa%0Ab") + File("d%2Fc+d%2B%25") + Folder("d%2Fx+y/")});
  const Listing listing = server.List("d/");
  EXPECT_THAT(listing.files, ElementsAre("a\nb", "c d+%"));
  EXPECT_THAT(listing.folders, ElementsAre("x y"));
}

TEST(S3Listing, KeepsKeysThatAreNotEncoded) {
  Server server({File("a+%41 &amp;&lt;") + File(" ")});
  EXPECT_THAT(server.List("").files, ElementsAre(" ", "a+%41 &<"));
}

TEST(S3Listing, OmitsTheFolderItself) {
  Server server({File("d/") + File("d/a")});
  EXPECT_THAT(server.List("d/").files, ElementsAre("a"));
}

TEST(S3Listing, OmitsInvalidFileNames) {
  Server server({kEncoded + File("d/.") + File("d/..") + File("d/a%5Cb") + File("d/a%2Fb") +
                 Folder("d//") + Folder("d/../") + File("d/...")});
  const Listing listing = server.List("d/");
  EXPECT_THAT(listing.files, ElementsAre("..."));
  EXPECT_THAT(listing.folders, IsEmpty());
}

TEST(S3Listing, RejectsKeysOfAnotherPrefix) {
  Server server({File("e/a")});
  EXPECT_THAT(
      [&] { server.List("d/"); },
      ThrowsMessage<Error>("unexpected key in a listing (found 'e/a', expected prefix 'd/')"));
}

TEST(S3Listing, RequiresAContinuationToken) {
  Server server({Truncated("")});
  EXPECT_THAT([&] { server.List(""); },
              ThrowsMessage<Error>("malformed listing: missing continuation token"));
}

TEST(S3Listing, RejectsOverlongTokens) {
  Server server({Truncated(std::string(8193, 't'))});
  EXPECT_THAT([&] { server.List(""); },
              ThrowsMessage<Error>("malformed listing: repeated continuation token"));
}

TEST(S3Listing, RejectsRepeatedTokens) {
  const auto does_not_go_on =
      ThrowsMessage<Error>("malformed listing: repeated continuation token");
  Server server({Truncated("t"), Truncated("t")});
  EXPECT_THAT([&] { server.List(""); }, does_not_go_on);
  Server larger({Truncated("t"), Truncated("u"), Truncated("v"), Truncated("t")});
  EXPECT_THAT([&] { larger.List(""); }, does_not_go_on);
}

TEST(S3Listing, HasALimitedNumberOfPages) {
  int page = 0;
  EXPECT_THAT(
      [&] { List("", [&](const Query&) { return Result(Truncated(std::to_string(++page))); }); },
      ThrowsMessage<Error>("listing too long: more than 4000 pages"));
}

TEST(S3Listing, MayHaveAsManyFilesAsAFolder) {
  int page = 0;
  const auto ask = [&](const Query&) {
    std::string files;
    ++page;
    for (int i = 0; i < 5000; ++i) files += File(fmt::format("{}.{}", page, i));
    return Result(page == 20 ? files : files + Truncated(std::to_string(page)));
  };
  EXPECT_EQ(List("", ask).files.size(), kMostFiles);
}

TEST(FileCount, IsLimited) {
  FileCount count;
  for (size_t i = 0; i < kMostFiles; ++i) count.Add();
  EXPECT_THAT([&] { count.Add(); },
              ThrowsMessage<Error>("the checkpoint has more than 100000 files"));
  EXPECT_THAT([&] { count.Add(); }, ThrowsMessage<Error>(testing::HasSubstr("100000")));
}

TEST(S3Listing, HasNoMoreFilesThanAFolder) {
  int page = 0;
  const auto ask = [&](const Query&) {
    std::string files;
    ++page;
    for (int i = 0; i < 5000; ++i) files += File(fmt::format("{}.{}", page, i));
    return Result(files + Truncated(std::to_string(page)));
  };
  EXPECT_THAT([&] { List("", ask); }, ThrowsMessage<Error>("has more than 100000 files"));
}

TEST(S3Listing, RequiresXml) {
  EXPECT_THAT([] { ParsePage("<ListBucketResult><Contents>"); },
              ThrowsMessage<Error>("malformed listing: not in XML"));
  EXPECT_THAT([] { ParsePage("<html></html>"); },
              ThrowsMessage<Error>("malformed listing: not in XML"));
  EXPECT_THAT([] { ParsePage(""); }, ThrowsMessage<Error>("malformed listing: not in XML"));
}

TEST(S3Listing, HasTheVersionsOfFiles) {
  const auto object = [](const char* key, const char* tag) {
    return fmt::format(
        "<Contents><Key>{}</Key><Size>12</Size><ETag>{}</ETag>"
        "<LastModified>2009-10-12T17:50:30.000Z</LastModified></Contents>",
        key, tag);
  };
  Server server({object("d/a", "&quot;v1&quot;") + object("d/b", "v1") + File("d/c")});
  const Listing listing = server.List("d/");
  EXPECT_THAT(listing.files, ElementsAre("a", "b", "c"));
  ASSERT_EQ(listing.versions.size(), 3U);
  EXPECT_EQ(listing.versions.at("b").tag, "v1");
  const http::Version& version = listing.versions.at("a");
  EXPECT_EQ(version.size, 12U);
  EXPECT_EQ(version.tag, "\"v1\"");
  EXPECT_EQ(version.last_modified, "12 Oct 2009 17:50:30 GMT");
  EXPECT_EQ(http::ParseDate(version.last_modified), 1255369830);
}

}  // namespace
}  // namespace ckptfs::s3
