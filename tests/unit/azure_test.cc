#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "parser/base/error.h"
#include "parser/source/az/container.h"
#include "parser/source/az/shared_key.h"

namespace ckptfs::az {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::ThrowsMessage;

TEST(AzureUri, NamesAnAccountAContainerAndABlob) {
  const BlobId id = ParseUri(ParseLocation("az://account/models/a b/c?d#e"));
  EXPECT_EQ(id.account, "account");
  EXPECT_EQ(id.blob.bucket, "models");
  EXPECT_EQ(id.blob.key, "a b/c?d#e");
  EXPECT_EQ(id.Root(), "az://account/models/");
  EXPECT_TRUE(ParseUri(ParseLocation("az://account/models")).blob.is_folder());
  EXPECT_TRUE(ParseUri(ParseLocation("az://account/$web/")).blob.is_folder());
}

TEST(AzureUri, IsRefusedIfItIsMalformed) {
  const auto refuses = [](const std::string& uri, const std::string& message) {
    EXPECT_THAT([&] { ParseUri(ParseLocation(uri)); }, ThrowsMessage<Error>(message)) << uri;
  };
  refuses("az://account/", "missing container (expected az://account/container/path)");
  refuses("az:///models/m", "missing container (expected az://account/container/path)");
  refuses("az://a:b@host/models", "invalid account name (expected az://account/container/path)");
  refuses("az://account/a_b/m", "invalid container name 'a_b'");
}

// The expected code was computed with Python's hmac module.
TEST(AzureSharedKey, SignsPathQueryAndHeaders) {
  const Account account{.name = "account", .key = ParseKey("c2VjcmV0", "it")};
  EXPECT_EQ(Sign({.path = "/models/a%20b",
                  .query = {{"restype", "container"}, {"comp", "list"}},
                  .headers = {"Range: bytes=0-9", "If-Match: \"v1\"", "x-ms-version: 2021-08-06",
                              "x-ms-date: Sun, 06 Nov 1994 08:49:37 GMT"}},
                 account),
            "Authorization: SharedKey account:SXOxCRjLnLfB08KrhgKZWRGnQoBtLHrqZWTv5/zC9Y4=");
}

TEST(AzureSharedKey, IsInBase64) {
  for (const char* const bad : {"", "!", "c2VjcmV0c", "c2Vj cmV0"}) {
    EXPECT_THAT([&] { ParseKey(bad, "AZURE_STORAGE_KEY"); },
                ThrowsMessage<Error>("AZURE_STORAGE_KEY is not a key in base64"));
  }
}

TEST(AzureSharedKey, HasDatesOfHttp) {
  EXPECT_EQ(FormatHttpDate(784111777), "Sun, 06 Nov 1994 08:49:37 GMT");
}

TEST(AzureListing, HasBlobsAndPrefixes) {
  const s3::Page page = ParsePage(
      "<EnumerationResults><Blobs><Blob><Name>d/a&amp;b</Name><Properties>"
      "<Last-Modified>Sun, 06 Nov 1994 08:49:37 GMT</Last-Modified><Etag>0x8D</Etag>"
      "<Content-Length>12</Content-Length></Properties></Blob>"
      "<Blob><Name Encoded=\"true\">d/%01</Name></Blob>"
      "<BlobPrefix><Name>d/sub/</Name></BlobPrefix></Blobs><NextMarker>x</NextMarker>"
      "</EnumerationResults>");
  EXPECT_THAT(page.keys, ElementsAre("d/a&b", "d/\x01"));
  EXPECT_THAT(page.prefixes, ElementsAre("d/sub/"));
  EXPECT_EQ(page.next, "x");
  EXPECT_EQ(page.versions.at(0).size, 12U);
  EXPECT_EQ(page.versions.at(0).tag, "\"0x8D\"");
  EXPECT_EQ(page.versions.at(0).last_modified, "Sun, 06 Nov 1994 08:49:37 GMT");
  EXPECT_EQ(page.versions.at(1).tag, "");
}

TEST(AzureListing, MayBeEmpty) {
  const s3::Page page = ParsePage("<EnumerationResults><Blobs/><NextMarker/></EnumerationResults>");
  EXPECT_THAT(page.keys, IsEmpty());
  EXPECT_EQ(page.next, "");
}

TEST(AzureListing, RequiresXml) {
  for (const char* const bad : {"", "{}", "<ListBucketResult/>", "<EnumerationResults>"}) {
    EXPECT_THAT([&] { ParsePage(bad); }, ThrowsMessage<Error>("malformed listing: not in XML"));
  }
}

}  // namespace
}  // namespace ckptfs::az
