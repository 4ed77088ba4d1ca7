#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <map>
#include <string>
#include <vector>

#include "parser/base/error.h"
#include "parser/source/hub/listing.h"
#include "parser/source/hub/location.h"
#include "parser/source/hub/settings.h"

namespace ckptfs::hub {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::ThrowsMessage;

FileId Parse(const std::string& uri) { return ParseUri(ParseLocation(uri)); }

struct UriCase {
  std::string uri;
  RepositoryId::Kind kind;
  std::string name;
  std::string revision;
  std::string path;
};

class HubUri : public testing::TestWithParam<UriCase> {};

TEST_P(HubUri, HasARepositoryARevisionAndAPath) {
  const FileId id = Parse(GetParam().uri);
  EXPECT_EQ(id.repository.kind, GetParam().kind);
  EXPECT_EQ(id.repository.name, GetParam().name);
  EXPECT_EQ(id.repository.revision, GetParam().revision);
  EXPECT_EQ(id.path, GetParam().path);
}

constexpr auto kModel = RepositoryId::Kind::kModel;
constexpr auto kDataset = RepositoryId::Kind::kDataset;
constexpr auto kSpace = RepositoryId::Kind::kSpace;

INSTANTIATE_TEST_SUITE_P(
    Forms, HubUri,
    testing::Values(
        UriCase{"hf://org/name", kModel, "org/name", "", ""},
        UriCase{"hf://org/name/", kModel, "org/name", "", ""},
        UriCase{"hf://org/name/a/b.bin", kModel, "org/name", "", "a/b.bin"},
        UriCase{"hf://org/name/a/", kModel, "org/name", "", "a/"},
        UriCase{"hf://models/org/name", kModel, "org/name", "", ""},
        UriCase{"hf://datasets/org/name@v1/a", kDataset, "org/name", "v1", "a"},
        UriCase{"hf://spaces/org/name", kSpace, "org/name", "", ""},
        UriCase{"hf://gpt2", kModel, "gpt2", "", ""}, UriCase{"hf://gpt2/", kModel, "gpt2", "", ""},
        UriCase{"hf://gpt2@main/a/b", kModel, "gpt2", "main", "a/b"},
        UriCase{"hf://org/name@a%2Fb/c", kModel, "org/name", "a/b", "c"},
        UriCase{"hf://org/name@refs/pr/1/c", kModel, "org/name", "refs/pr/1", "c"},
        UriCase{"hf://org/name@refs/pr/1", kModel, "org/name", "refs/pr/1", ""},
        UriCase{"hf://org/name@refs/convert/x/", kModel, "org/name", "refs/convert/x", ""},
        UriCase{"hf://org/name@refs/heads/x", kModel, "org/name", "refs", "heads/x"},
        UriCase{"hf://org/name/a@b/c%20d?e#f", kModel, "org/name", "", "a@b/c%20d?e#f"}));

TEST(HubUri, IsRebuilt) {
  for (const char* const uri :
       {"hf://org/name", "hf://datasets/org/name@v1", "hf://gpt2@a%2Fb", "hf://a/b@refs/pr/1"}) {
    EXPECT_EQ(Parse(uri).repository.Uri(), uri);
  }
}

TEST(HubUri, IsRefusedIfItIsMalformed) {
  const auto refuses = [](const std::string& uri, const std::string& message) {
    EXPECT_THAT([&] { Parse(uri); }, ThrowsMessage<Error>(message)) << uri;
  };
  refuses("hf://", "missing repository (expected hf://org/name[@revision][/path])");
  refuses("hf:///name", "missing repository (expected hf://org/name[@revision][/path])");
  refuses("hf://org/name@", "missing revision after '@'");
  refuses("hf://org/name@a b", "invalid revision 'a b'");
  refuses("hf://org/name@..", "invalid revision '..'");
  refuses("hf://org/name@a%2F%2Fb", "invalid revision 'a//b'");
  refuses("hf://org/na me", "invalid repository name 'na me'");
  refuses("hf://org/.name", "invalid repository name '.name'");
  refuses("hf://org/name/a//b", "invalid path 'a//b'");
  refuses("hf://org/name/../b", "invalid path '../b'");
  refuses("hf://org/name//", "invalid path '/'");
  refuses("hf://hf_x@org/name",
          "user or token in place of the repository: put the token into HF_TOKEN");
}

TEST(HubUri, ShowsARevisionButNoToken) {
  EXPECT_EQ(Redacted("hf://gpt2@main/a"), "hf://gpt2@main/a");
  EXPECT_EQ(Redacted("hf://hf_org/name@main/a@b"), "hf://hf_org/name@main/a@b");
  EXPECT_EQ(Redacted("hf://hf_token@org/name"), "hf://org/name");
  EXPECT_EQ(Redacted("hf://user:hf_token@host/org/name"), "hf://host/org/name");
}

Environment Variables(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? "" : found->second;
  };
}

TEST(HubCache, IsWhereItsClientHasIt) {
  EXPECT_EQ(FindCache(Variables({{"HOME", "/h"}})), "/h/.cache/huggingface/hub");
  EXPECT_EQ(FindCache(Variables({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}})), "/x/huggingface/hub");
  EXPECT_EQ(FindCache(Variables({{"XDG_CACHE_HOME", "/x"}, {"HF_HOME", "/f"}})), "/f/hub");
  EXPECT_EQ(FindCache(Variables({{"HF_HOME", "/f"}, {"HF_HUB_CACHE", "/c"}})), "/c");
  EXPECT_EQ(FindCache(Variables({{"HOME", "/h"}, {"HF_HUB_CACHE", "~/c"}})), "/h/c");
  EXPECT_EQ(FindCache(Variables({})), "");
}

http::Response Page(std::string body, const std::string& link = "") {
  http::Response response;
  response.status = 200;
  response.body = std::move(body);
  if (!link.empty()) response.headers.emplace_back("link", link);
  return response;
}

TEST(HubListing, FindsTheNextPage) {
  EXPECT_EQ(FindNextPage(Page("", R"(<https://h/a?cursor=b,c>; rel="next")")),
            "https://h/a?cursor=b,c");
  EXPECT_EQ(FindNextPage(Page("", R"(<https://h/a>; rel="prev", </b>; rel="next")")), "/b");
  for (const char* const none :
       {"", "<", ">;<", "<a", "<a>", R"(<a>; rel="prev")", "rel=\"next\""}) {
    EXPECT_EQ(FindNextPage(Page("", none)), "") << none;
  }
}

std::string Entry(const std::string& path, uint64_t size = 1) {
  return fmt::format(R"({{"type":"file","path":"{}","size":{},"oid":"{:040x}"}})", path, size, 10);
}

Listing ListOf(const std::vector<std::string>& entries) {
  return List("", http::ParseUrl("http://h/"),
              [&](const http::Url&) { return Page(fmt::format("[{}]", fmt::join(entries, ","))); });
}

TEST(HubListing, HasFilesAndFolders) {
  const Listing listing = ListOf({Entry("b"), Entry("a/x"), Entry("a-b/y"), Entry("a/b/c"),
                                  Entry("a0"), R"({"type":"directory","path":"a","oid":""})"});
  EXPECT_THAT(listing.FilesIn(""), ElementsAre("a0", "b"));
  EXPECT_THAT(listing.FoldersIn(""), ElementsAre("a", "a-b"));
  EXPECT_THAT(listing.FilesIn("a/"), ElementsAre("x"));
  EXPECT_THAT(listing.FoldersIn("a/"), ElementsAre("b"));
  EXPECT_THAT(listing.FilesIn("a/b/"), ElementsAre("c"));
  EXPECT_THAT(listing.FoldersIn("a/b/"), IsEmpty());
  EXPECT_TRUE(listing.HasFolder("a/b/"));
  EXPECT_FALSE(listing.HasFolder("a/x/"));
  EXPECT_EQ(listing.Find("a/b"), nullptr);
  EXPECT_EQ(listing.Find("a/b/c")->id.Hex(), "000000000000000000000000000000000000000a");
}

TEST(HubListing, HasTheHashOfALargeFile) {
  const std::string hash(64, 'f');
  const Listing listing =
      ListOf({fmt::format(R"({{"type":"file","path":"m","size":5,"oid":"{:040}",)"
                          R"("lfs":{{"oid":"{}","size":5,"pointerSize":134}}}})",
                          0, hash)});
  EXPECT_TRUE(listing.Find("m")->id.is_sha256());
  EXPECT_EQ(listing.Find("m")->id.Hex(), hash);
  EXPECT_EQ(listing.Find("m")->size, 5U);
}

TEST(HubListing, LeavesOutNamesThatNoFileMayHave) {
  const Listing listing = ListOf({Entry("../a"), Entry("/a"), Entry("a//b"), Entry("a/"),
                                  Entry("a\\u0000b"), Entry("a\\\\b"), Entry(""), Entry("good")});
  EXPECT_THAT(listing.FilesIn(""), ElementsAre("good"));
  EXPECT_THAT(listing.FoldersIn(""), IsEmpty());
}

TEST(HubListing, RefusesContradictions) {
  EXPECT_THAT(
      [] {
        ListOf({Entry("a"), Entry("a", 2)});
      },
      ThrowsMessage<Error>("malformed listing: two files 'a'"));
  EXPECT_THAT(
      [] {
        ListOf({Entry("a"), Entry("a-"), Entry("a/b")});
      },
      ThrowsMessage<Error>("malformed listing: 'a' is a file and a folder"));
}

}  // namespace
}  // namespace ckptfs::hub
