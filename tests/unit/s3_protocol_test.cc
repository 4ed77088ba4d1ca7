// URIs, signatures and responses of S3.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "parser/base/encoding.h"
#include "parser/base/error.h"
#include "parser/io/location.h"
#include "parser/source/s3/folder.h"
#include "parser/source/s3/location.h"
#include "parser/source/s3/response.h"
#include "parser/source/s3/sigv4.h"

namespace ckptfs::s3 {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

ObjectId ParseUri(const std::string& uri) { return s3::ParseUri(ParseLocation(uri)); }

TEST(S3Uri, NamesABucketAndAKey) {
  const ObjectId id = ParseUri("s3://bucket/dir/m.pth");
  EXPECT_EQ(id.bucket, "bucket");
  EXPECT_EQ(id.key, "dir/m.pth");
  EXPECT_EQ(id.version, "");
  EXPECT_FALSE(id.is_folder());
}

TEST(S3Uri, DoesNotDecodeTheKey) {
  EXPECT_EQ(ParseUri("s3://b/a b%20+?x=1#y//./../z").key, "a b%20+?x=1#y//./../z");
}

TEST(S3Uri, HasAKeyThatBeginsWithASlash) { EXPECT_EQ(ParseUri("s3://b//m").key, "/m"); }

TEST(S3Uri, NamesAVersionAtTheEnd) {
  const ObjectId id = ParseUri("s3://b/k?versionId=1?versionId=Ab.C_d");
  EXPECT_EQ(id.key, "k?versionId=1");
  EXPECT_EQ(id.version, "Ab.C_d");
}

TEST(S3Uri, NamesAFolderByASlashAtTheEnd) { EXPECT_TRUE(ParseUri("s3://b/dir/").is_folder()); }

TEST(S3Uri, NamesABucketAsAFolder) {
  EXPECT_TRUE(ParseUri("s3://b").is_folder());
  EXPECT_EQ(ParseUri("s3://b").bucket, "b");
}

TEST(S3Uri, RequiresABucket) {
  EXPECT_THAT([] { ParseUri("s3:///key"); },
              ThrowsMessage<Error>("missing bucket (expected s3://bucket/key)"));
}

TEST(S3Uri, RejectsAUser) {
  constexpr const char* kSentence =
      "user or port in place of the bucket: set the server with -o endpoint=, and credentials as "
      "for "
      "the AWS tools";
  EXPECT_THAT([] { ParseUri("s3://user@b/key"); }, ThrowsMessage<Error>(kSentence));
  EXPECT_THAT([] { ParseUri("s3://user:secret@b/key"); }, ThrowsMessage<Error>(kSentence));
  EXPECT_THAT([] { ParseUri("s3://user%3Asecret%40b/key"); }, ThrowsMessage<Error>(kSentence));
  EXPECT_THAT([] { ParseUri("s3://user:sec/ret@b/key"); }, ThrowsMessage<Error>(kSentence));
}

TEST(S3Uri, RejectsInvalidBucketNames) {
  EXPECT_THAT([] { ParseUri("s3://host\\/key"); },
              ThrowsMessage<Error>("invalid bucket name 'host\\'"));
}

TEST(S3Uri, RejectsAVersionOfAFolder) {
  EXPECT_THAT([] { ParseUri("s3://b/d/?versionId=1"); },
              ThrowsMessage<Error>("version of a folder (expected a key before ?versionId=)"));
}

TEST(S3Uri, RejectsAnEmptyVersion) {
  EXPECT_THAT([] { ParseUri("s3://b/k?versionId="); },
              ThrowsMessage<Error>("missing version after ?versionId="));
}

TEST(S3Encoding, KeepsUnreservedCharactersOnly) {
  EXPECT_EQ(PercentEncode("azAZ09-._~"), "azAZ09-._~");
  EXPECT_EQ(PercentEncode(" +%&=?#@:,;$!*'()\"<>\\^`{|}"),
            "%20%2B%25%26%3D%3F%23%40%3A%2C%3B%24%21%2A%27%28%29%22%3C%3E%5C%5E%60%7B%7C%7D");
}

TEST(S3Encoding, IsInUpperCase) { EXPECT_EQ(PercentEncode("\xC3\xA4\xFF\n"), "%C3%A4%FF%0A"); }

TEST(S3Encoding, KeepsTheSlashesOfAPath) {
  EXPECT_EQ(PercentEncode("a//b/./c", "/"), "a//b/./c");
  EXPECT_EQ(PercentEncode("a/b"), "a%2Fb");
}

TEST(S3Encoding, IsUndoneInListings) {
  const Page page = ParsePage(
      "<ListBucketResult><EncodingType>url</EncodingType>"
      "<Contents><Key>a+b%20c%2Bd%2bе</Key></Contents></ListBucketResult>");
  EXPECT_THAT(page.keys, ElementsAre("a b c+d+е"));
}

TEST(S3Encoding, KeepsMalformedSequences) {
  EXPECT_EQ(PercentDecode("%"), "%");
  EXPECT_EQ(PercentDecode("%4"), "%4");
  EXPECT_EQ(PercentDecode("%4x%xx"), "%4x%xx");
  EXPECT_EQ(PercentDecode("%41"), "A");
}

// The examples of the documentation: 24 May 2013, 00:00:00 UTC.
class S3Signature : public testing::Test {
 protected:
  static constexpr std::time_t kThen = 1369353600;

  std::string HeaderOf(const UnsignedRequest& request) const {
    return Sign(request, {.region = "us-east-1"}, *credentials_, kThen).back();
  }

  UnsignedRequest Get(std::string path, const Query& query) const {
    UnsignedRequest request;
    request.host = "examplebucket.s3.amazonaws.com";
    request.path = std::move(path);
    request.query = CanonicalQuery(query);
    return request;
  }

  const CredentialsPtr credentials_ = MakeCredentials(
      "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "", "a test");
};

TEST_F(S3Signature, OfARangeIsThatOfTheDocumentation) {
  UnsignedRequest request = Get("/test.txt", {});
  request.headers = {{"range", "bytes=0-9"}};
  EXPECT_EQ(HeaderOf(request),
            "Authorization: AWS4-HMAC-SHA256 "
            "Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
            "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,"
            "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

TEST_F(S3Signature, OfAQueryWithoutAValueIsThatOfTheDocumentation) {
  EXPECT_THAT(HeaderOf(Get("/", {{"lifecycle", ""}})),
              testing::EndsWith(
                  "Signature=fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"));
}

TEST_F(S3Signature, OfAListingIsThatOfTheDocumentation) {
  EXPECT_THAT(HeaderOf(Get("/", {{"prefix", "J"}, {"max-keys", "2"}})),
              testing::EndsWith(
                  "Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"));
}

// Made by botocore.
TEST_F(S3Signature, OfAnOddKeyWithASessionIsThatOfTheAwsTools) {
  const CredentialsPtr temporary = MakeCredentials(
      "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "tok/en+=", "a test");
  UnsignedRequest request;
  request.host = "s3.eu-central-1.amazonaws.com";
  request.path = "/my.bucket/" + PercentEncode("a b+%/\xC3\xA4//e/./x", "/");
  request.headers = {{"x-amz-request-payer", "requester"}};
  EXPECT_THAT(
      Sign(request, {.region = "eu-central-1"}, *temporary, 1795320000),
      ElementsAre(
          "x-amz-request-payer: requester",
          "x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
          "x-amz-date: 20261122T040000Z", "x-amz-security-token: tok/en+=",
          "Authorization: AWS4-HMAC-SHA256 "
          "Credential=AKIAIOSFODNN7EXAMPLE/20261122/eu-central-1/s3/aws4_request,"
          "SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-request-payer;"
          "x-amz-security-token,"
          "Signature=7a4561afa6e32281bde3d1188ea4dfe8eb63a5a91fd34b86f34f288f4f4bd82b"));
}

TEST(S3Query, IsSortedByItsEncoding) {
  EXPECT_EQ(CanonicalQuery({{"b", "1"}, {"a", "\xC3\xA4 /+"}, {"A", ""}, {"a-b", "x"}}),
            "A=&a=%C3%A4%20%2F%2B&a-b=x&b=1");
}

TEST(S3Query, IsEmptyIfThereIsNone) { EXPECT_EQ(CanonicalQuery({}), ""); }

TEST(S3Credentials, RejectLineFeeds) {
  EXPECT_THAT([] { MakeCredentials("key", "secret", "token\r\nHost: other", "a test"); },
              ThrowsMessage<Error>("invalid credentials of a test: empty, or with characters that "
                                   "no key contains"));
}

TEST(S3Credentials, RequireASecret) {
  EXPECT_THAT([] { MakeCredentials("key", "", "", "a test"); },
              ThrowsMessage<Error>(HasSubstr(": empty")));
}

TEST(S3Time, IsRelativeToTheEpoch) { EXPECT_EQ(ParseTime("1970-01-01T00:00:00Z"), 0); }

TEST(S3Time, MayHaveAFraction) { EXPECT_EQ(ParseTime("2026-11-22T04:00:00.999999Z"), 1795320000); }

TEST(S3Time, MayBeOfAnotherZone) {
  EXPECT_EQ(ParseTime("2026-11-22T05:30:00+01:30"), 1795320000);
  EXPECT_EQ(ParseTime("2026-11-21T23:00:00-05:00"), 1795320000);
}

TEST(S3Time, RejectsInvalidDates) {
  EXPECT_EQ(ParseTime("2026-02-29T00:00:00Z"), std::nullopt);
  EXPECT_EQ(ParseTime("2026-11-22T24:00:00Z"), std::nullopt);
}

TEST(S3Time, RejectsTrailingText) {
  EXPECT_EQ(ParseTime("2026-11-22T04:00:00Zx"), std::nullopt);
  EXPECT_EQ(ParseTime("2026-11-22T04:00:00+01:00x"), std::nullopt);
}

TEST(S3Time, RejectsOtherFormats) {
  EXPECT_EQ(ParseTime("soon"), std::nullopt);
  EXPECT_EQ(ParseTime("2026-11-22 04:00:00"), std::nullopt);
  EXPECT_EQ(ParseTime(""), std::nullopt);
}

TEST(S3Response, HasCredentialsInJson) {
  const CredentialsPtr found = ParseJsonCredentials(
      R"({"Version": 1, "AccessKeyId": "AK", "SecretAccessKey": "SK", "SessionToken": "ST",
          "Expiration": "2026-11-22T04:00:00Z"})",
      "the program");
  EXPECT_TRUE(AreSame(*found, *MakeCredentials("AK", "SK", "ST", "")));
  EXPECT_EQ(found->expiry, 1795320000);
  EXPECT_EQ(found->origin, "the program");
}

TEST(S3Response, HasTheTokenOfAContainer) {
  const CredentialsPtr found =
      ParseJsonCredentials(R"({"AccessKeyId":"AK","SecretAccessKey":"SK","Token":"T"})", "it");
  EXPECT_EQ(found->session_token, "T");
  EXPECT_EQ(found->expiry, std::nullopt);
}

TEST(S3Response, IgnoresNestedCredentials) {
  EXPECT_THAT(
      [] { ParseJsonCredentials(R"({"a": {"AccessKeyId":"AK","SecretAccessKey":"SK"}})", "it"); },
      ThrowsMessage<Error>("it: no credentials found"));
}

TEST(S3Response, HasTheErrorCodeInJson) {
  EXPECT_THAT([] { ParseJsonCredentials(R"({"Code": "AssumeRoleUnauthorizedAccess"})", "it"); },
              ThrowsMessage<Error>("it: no credentials found: AssumeRoleUnauthorizedAccess"));
}

TEST(S3Response, ShowsErrorCodesOnly) {
  EXPECT_THAT([] { ParseJsonCredentials(R"({"Code": "no such user"})", "it"); },
              ThrowsMessage<Error>("it: no credentials found"));
}

TEST(S3Response, IsNotShownIfItIsMalformed) {
  EXPECT_THAT([] { ParseJsonCredentials("SECRET", "it"); },
              ThrowsMessage<Error>("it: malformed credentials: not a JSON object"));
  EXPECT_THAT([] { ParseJsonCredentials("[\"SECRET\"]", "it"); },
              ThrowsMessage<Error>("it: malformed credentials: not a JSON object"));
}

TEST(S3Response, RejectsAMalformedExpiration) {
  EXPECT_THAT(
      [] {
        ParseJsonCredentials(R"({"AccessKeyId":"A","SecretAccessKey":"S","Expiration":"never"})",
                             "it");
      },
      ThrowsMessage<Error>("it: invalid expiration 'never'"));
}

TEST(S3Response, HasCredentialsInXml) {
  const CredentialsPtr found = ParseXmlCredentials(
      R"(<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult>
         <Credentials><AccessKeyId>AK</AccessKeyId><SecretAccessKey>S&amp;K</SecretAccessKey>
         <SessionToken>ST</SessionToken><Expiration>2026-11-22T04:00:00Z</Expiration>
         </Credentials></AssumeRoleResult></AssumeRoleResponse>)",
      "the role");
  EXPECT_TRUE(AreSame(*found, *MakeCredentials("AK", "S&K", "ST", "")));
  EXPECT_EQ(found->expiry, 1795320000);
}

TEST(S3Response, HasTheErrorCodeInXml) {
  EXPECT_THAT(
      [] {
        ParseXmlCredentials(
            "<ErrorResponse><Error><Code>ExpiredToken</Code></Error></ErrorResponse>", "the role");
      },
      ThrowsMessage<Error>("the role: no credentials found: ExpiredToken"));
}

TEST(S3Response, HasCodeMessageAndRegionOfAnError) {
  const ErrorResponse failure = ParseErrorResponse(
      "<?xml version=\"1.0\"?><Error><Code>AuthorizationHeaderMalformed</Code><Message>the region "
      "is wrong</Message><Region>eu-west-1</Region></Error>");
  EXPECT_EQ(failure.code, "AuthorizationHeaderMalformed");
  EXPECT_EQ(failure.message, "the region is wrong");
  EXPECT_EQ(failure.region, "eu-west-1");
}

TEST(S3Response, MayHaveAnEmptyMessage) {
  const ErrorResponse failure =
      ParseErrorResponse("<Error><Code>NoSuchKey</Code><Message></Message></Error>");
  EXPECT_EQ(failure.code, "NoSuchKey");
  EXPECT_EQ(failure.message, "");
}

TEST(S3Response, IsEmptyIfItIsMalformed) {
  EXPECT_EQ(ParseErrorResponse("<html>Forbidden").code, "");
  EXPECT_EQ(ParseErrorResponse("").code, "");
}

}  // namespace
}  // namespace ckptfs::s3
