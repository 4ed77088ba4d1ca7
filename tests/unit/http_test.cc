#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "parser/base/encoding.h"
#include "parser/base/error.h"
#include "parser/source/http/headers.h"
#include "parser/source/http/url.h"
#include "parser/source/http/web_access.h"
#include "parser/source/retry_policy.h"

namespace ckptfs::http {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::Property;
using testing::Throws;
using testing::ThrowsMessage;

constexpr std::string_view kStart = "https://host/m.pth";

Response Answer(int status, std::vector<std::pair<std::string, std::string>> headers = {}) {
  Response response;
  response.status = status;
  response.headers = std::move(headers);
  return response;
}

Response RedirectTo(std::string location) {
  Response response = Answer(302);
  response.location = std::move(location);
  return response;
}

TEST(ContentRange, HasOffsetLengthAndTotal) {
  const auto range = ParseContentRange("bytes 100-299/1000");
  ASSERT_TRUE(range);
  EXPECT_EQ(range->offset, 100U);
  EXPECT_EQ(range->length, 200U);
  EXPECT_EQ(range->total, 1000U);
}

TEST(ContentRange, HasTheTotalOfAnUnsatisfiableRange) {
  const auto range = ParseContentRange("bytes */1000");
  ASSERT_TRUE(range);
  EXPECT_EQ(range->length, 0U);
  EXPECT_EQ(range->total, 1000U);
}

TEST(ContentRange, LiesWithinTheTotal) {
  EXPECT_FALSE(ParseContentRange("bytes 0-1000/1000"));
  EXPECT_TRUE(ParseContentRange("bytes 0-999/1000"));
}

TEST(ContentRange, RejectsALastByteBeforeTheFirst) {
  EXPECT_FALSE(ParseContentRange("bytes 5-4/10"));
}

TEST(ContentRange, RequiresATotal) { EXPECT_FALSE(ParseContentRange("bytes 0-9/*")); }

TEST(ContentRange, RejectsNumbersBeyond63Bits) {
  EXPECT_FALSE(ParseContentRange("bytes 0-9/18446744073709551616"));
  EXPECT_FALSE(ParseContentRange("bytes 0-9/9223372036854775808"));
  EXPECT_TRUE(ParseContentRange("bytes 0-9/9223372036854775807"));
}

TEST(ContentRange, RejectsSeveralRanges) {
  EXPECT_FALSE(ParseContentRange("bytes 0-9/10, bytes 20-29/30"));
}

TEST(ContentRange, HasAUnitInAnyCase) { EXPECT_TRUE(ParseContentRange("Bytes 0-9/10")); }

TEST(ContentRange, RejectsOtherUnits) { EXPECT_FALSE(ParseContentRange("items 0-9/10")); }

TEST(RetryAfter, IsANumberOfSeconds) { EXPECT_EQ(ParseRetryAfter("120", 0), seconds(120)); }

TEST(RetryAfter, IsADateInServerTime) {
  EXPECT_EQ(ParseRetryAfter("Sun, 06 Nov 1994 08:49:37 GMT", 784111777 - 5), seconds(5));
}

TEST(RetryAfter, IsZeroAfterTheDate) {
  EXPECT_EQ(ParseRetryAfter("Sun, 06 Nov 1994 08:49:37 GMT", 784111777 + 5), seconds(0));
}

TEST(RetryAfter, IsADayAtMost) {
  EXPECT_EQ(ParseRetryAfter("9223372036854775807", 0), seconds(86'400));
}

TEST(RetryAfter, IsMissingIfItIsMalformed) {
  EXPECT_EQ(ParseRetryAfter("soon", 0), std::nullopt);
  EXPECT_EQ(ParseRetryAfter("-1", 0), std::nullopt);
}

TEST(EntityTag, IsStrongInQuotes) {
  EXPECT_TRUE(IsStrongTag("\"33a64df5\""));
  EXPECT_TRUE(IsStrongTag("\"\""));
}

TEST(EntityTag, IsWeakWithAPrefix) { EXPECT_FALSE(IsStrongTag("W/\"33a64df5\"")); }

TEST(EntityTag, IsWeakIfItIsMalformed) {
  EXPECT_FALSE(IsStrongTag("\""));
  EXPECT_FALSE(IsStrongTag("33a64df5"));
  EXPECT_FALSE(IsStrongTag("\"a\", \"b\""));
  EXPECT_FALSE(IsStrongTag("\"a\r\nHeader: b\""));
}

class Part : public testing::Test {
 protected:
  Response Good() const {
    return Answer(
        206, {{"content-range", "bytes 10-19/100"}, {"content-length", "10"}, {"etag", "\"v1\""}});
  }

  // Returns the response with another value of a header.
  Response GoodBut(const std::string& name, const std::string& value) const {
    Response response = Good();
    for (auto& [known, now] : response.headers) {
      if (known == name) now = value;
    }
    return response;
  }

  void Require(const Response& response) const {
    ValidateVersion(response, version_);
    ValidatePart(response, range_, version_);
  }

  const ByteRange range_{.offset = 10, .length = 10};
  const Version version_{.size = 100, .tag = "\"v1\"", .last_modified = ""};
};

TEST_F(Part, IsAcceptedIfItIsTheRequestedRange) { EXPECT_NO_THROW(Require(Good())); }

TEST_F(Part, OfAnotherVersionIsAPermanentError) {
  EXPECT_THAT([&] { Require(GoodBut("etag", "\"v2\"")); },
              Throws<Error>(AllOf(
                  Property(&Error::code, ESTALE),
                  Property(&Error::what, std::string("object changed since it was opened")))));
}

TEST_F(Part, WithoutATagCountsAsAnotherVersion) {
  EXPECT_THAT([&] { Require(GoodBut("etag", "")); }, Throws<Error>(Property(&Error::code, ESTALE)));
}

TEST_F(Part, OfALongerObjectWithTheSameStrongTagIsInvalid) {
  EXPECT_THAT(
      [&] { Require(GoodBut("content-range", "bytes 10-19/101")); },
      ThrowsMessage<InvalidResponse>("unexpected length of the file (found 101, expected 100)"));
}

TEST_F(Part, OfALongerObjectIsOfAnotherVersionIfTheTagIsWeak) {
  const Version weak{.size = 100, .tag = "W/\"v1\"", .last_modified = ""};
  Response response = GoodBut("content-range", "bytes 10-19/101");
  for (auto& [name, value] : response.headers) {
    if (name == "etag") value = weak.tag;
  }
  EXPECT_THAT([&] { ValidatePart(response, range_, weak); },
              Throws<Error>(Property(&Error::code, ESTALE)));
}

TEST_F(Part, OfAnotherRangeIsInvalid) {
  for (const char* const other :
       {"bytes 11-20/100", "bytes 9-18/100", "bytes 10-20/100", "items 10-19/100"}) {
    EXPECT_THAT([&] { Require(GoodBut("content-range", other)); },
                ThrowsMessage<InvalidResponse>(fmt::format(
                    "unexpected content range (found '{}', expected bytes 10 to 19)", other)));
  }
}

TEST_F(Part, WithoutARangeIsInvalid) {
  EXPECT_THAT([&] { Require(GoodBut("content-range", "")); },
              ThrowsMessage<InvalidResponse>("partial response without a content range"));
}

TEST_F(Part, OfSeveralRangesIsInvalid) {
  Response response = GoodBut("content-range", "");
  response.headers.emplace_back("content-type", "multipart/byteranges; boundary=X");
  EXPECT_THAT([&] { Require(response); },
              ThrowsMessage<InvalidResponse>("multipart response to a request for one range"));
}

TEST_F(Part, OfAnotherLengthIsInvalid) {
  EXPECT_THAT([&] { Require(GoodBut("content-length", "9")); },
              ThrowsMessage<InvalidResponse>("unexpected content length (found '9', expected 10)"));
}

TEST_F(Part, MayHaveFewerBytesThanWereRequested) {
  const Response response = Answer(
      206, {{"content-range", "bytes 10-12/100"}, {"content-length", "3"}, {"etag", "\"v1\""}});
  EXPECT_EQ(ValidatePart(response, range_, version_), 3U);
}

TEST_F(Part, IsAcceptedWithStatus200AndItsContentRange) {
  Response response = Good();
  response.status = 200;
  EXPECT_NO_THROW(Require(response));
}

TEST_F(Part, OfAnotherRangeIsInvalidWithStatus200Too) {
  Response response = GoodBut("content-range", "bytes 0-9/100");
  response.status = 200;
  EXPECT_THAT([&] { Require(response); },
              ThrowsMessage<InvalidResponse>(
                  "unexpected content range (found 'bytes 0-9/100', expected bytes 10 to 19)"));
}

TEST_F(Part, ThatIsTheWholeFileIsInvalid) {
  Response response = GoodBut("content-range", "");
  response.status = 200;
  EXPECT_THAT([&] { Require(response); },
              ThrowsMessage<InvalidResponse>("server returned the whole file instead of a range"));
}

TEST_F(Part, InAnEncodingIsInvalid) {
  Response response = Good();
  response.headers.emplace_back("content-encoding", "gzip");
  EXPECT_THAT([&] { Require(response); },
              ThrowsMessage<InvalidResponse>("unexpected content encoding 'gzip'"));
}

TEST_F(Part, MayHaveTheIdentityEncodingInAnyCase) {
  Response response = Good();
  response.headers.emplace_back("content-encoding", "Identity");
  EXPECT_NO_THROW(Require(response));
}

TEST(Version, IsRequestedByItsTag) {
  const Version version{.size = 1, .tag = "\"v1\"", .last_modified = "yesterday"};
  EXPECT_EQ(version.Condition(), "If-Match: \"v1\"");
}

TEST(Version, IsRequestedByItsTimeIfItsTagIsWeak) {
  const Version version{.size = 1, .tag = "W/\"v1\"", .last_modified = "yesterday"};
  EXPECT_EQ(version.Condition(), "If-Unmodified-Since: yesterday");
}

TEST(Version, HasNoConditionWithoutValidators) {
  EXPECT_EQ((Version{.size = 1, .tag = "", .last_modified = ""}).Condition(), "");
}

TEST(Version, IgnoresOverlongTags) {
  const std::string longest = '"' + std::string(998, 'x') + '"';
  EXPECT_EQ(ParseVersion({.status = 206, .headers = {{"etag", longest}}}, 1).tag, longest);
  EXPECT_EQ(ParseVersion({.status = 206, .headers = {{"etag", longest + "x"}}}, 1).tag, "");
}

class BackoffTest : public testing::Test {
 protected:
  static Backoff::Clock::time_point At(seconds time) { return Backoff::Clock::time_point() + time; }

  Backoff backoff_{seconds(60), At(seconds(0)), [] { return 0.5; }};
};

TEST_F(BackoffTest, WaitsTwiceAsLongEachTimeUpToTenSeconds) {
  std::vector<int64_t> waits(9);
  for (int64_t& wait : waits) wait = backoff_.Wait(At(seconds(0)), {})->count();
  EXPECT_THAT(waits, ElementsAre(50, 100, 200, 400, 800, 1600, 3200, 5000, 5000));
}

TEST_F(BackoffTest, WaitsAsLongAsTheServerRequests) {
  EXPECT_EQ(backoff_.Wait(At(seconds(0)), seconds(7)), seconds(7));
}

TEST_F(BackoffTest, DoesNotWaitBeyondTheDeadline) {
  EXPECT_EQ(backoff_.Wait(At(seconds(58)), seconds(7)), seconds(2));
}

TEST_F(BackoffTest, EndsAtTheDeadline) {
  EXPECT_EQ(backoff_.Wait(At(seconds(60)), seconds(7)), std::nullopt);
}

TEST_F(BackoffTest, ExtendsTheDeadlineByReceivedBytes) {
  backoff_.Received(uint64_t{160} << 10U);
  EXPECT_EQ(backoff_.Left(At(seconds(60))), seconds(10));
}

TEST_F(BackoffTest, CountsBytesThatAreReceivedAgainOnce) {
  backoff_.Received(uint64_t{160} << 10U);
  backoff_.Received(uint64_t{100} << 10U);
  EXPECT_EQ(backoff_.Left(At(seconds(60))), seconds(10));
}

TEST_F(BackoffTest, StartsANewRowAfterManyBytes) {
  backoff_.Wait(At(seconds(0)), {});
  backoff_.Wait(At(seconds(0)), {});
  backoff_.Received(64 << 10U);
  EXPECT_EQ(backoff_.Wait(At(seconds(0)), {}), milliseconds(50));
}

TEST_F(BackoffTest, ContinuesTheRowAfterFewBytes) {
  backoff_.Wait(At(seconds(0)), {});
  backoff_.Received(1000);
  EXPECT_EQ(backoff_.Wait(At(seconds(0)), {}), milliseconds(100));
}

class RetryPolicyTest : public testing::Test {
 protected:
  RetryPolicyTest() {
    options_.timeout = seconds(60);
    options_.warn = [this](std::string_view what) { warnings_.emplace_back(what); };
  }

  // Runs attempts that all throw `error`, and counts them.
  template <typename E>
  static void RunFailing(RetryPolicy& retry, const E& error, int& count) {
    retry.Run(
        [&]() -> bool {
          ++count;
          throw E(error);
        },
        {});
  }

  SourceOptions options_;
  std::vector<std::string> warnings_;
};

TEST_F(RetryPolicyTest, RetriesAfterATransientErrorAndWarns) {
  RetryPolicy retry(options_, RetryPolicy::Phase::kReading, "https://host/m", "bytes 0 to 9");
  int count = 0;
  retry.Run(
      [&] {
        if (++count == 1) Fail(ECONNRESET, "connection reset after 5 bytes");
        return true;
      },
      {});
  EXPECT_EQ(count, 2);
  EXPECT_THAT(
      warnings_,
      ElementsAre("https://host/m: bytes 0 to 9: connection reset after 5 bytes; retrying"));
}

TEST_F(RetryPolicyTest, ThrowsTheLastErrorAfterTheDeadline) {
  options_.timeout = seconds(0);
  RetryPolicy retry(options_, RetryPolicy::Phase::kReading, "https://host/m", "bytes 0 to 9");
  EXPECT_THAT([&] { retry.Run([]() -> bool { Fail(ECONNRESET, "connection reset"); }, {}); },
              Throws<Error>(AllOf(
                  Property(&Error::code, EREMOTEIO),
                  Property(&Error::what,
                           std::string("bytes 0 to 9: connection reset; gave up after 0 s")))));
}

TEST_F(RetryPolicyTest, ThrowsATimeoutIfThatWasTheLastError) {
  options_.timeout = seconds(0);
  RetryPolicy retry(options_, RetryPolicy::Phase::kReading, "https://host/m", "");
  EXPECT_THAT([&] { retry.Run([]() -> bool { Fail(ETIMEDOUT, "silent"); }, {}); },
              Throws<Error>(Property(&Error::code, ETIMEDOUT)));
}

TEST_F(RetryPolicyTest, DoesNotRetryARefusedConnectionWhileOpening) {
  RetryPolicy retry(options_, RetryPolicy::Phase::kOpening, "https://host/m", "");
  EXPECT_THAT([&] { retry.Run([]() -> bool { Fail(ECONNREFUSED, "refused"); }, {}); },
              Throws<Error>(Property(&Error::code, ECONNREFUSED)));
}

TEST_F(RetryPolicyTest, RetriesARefusedConnectionWhileReading) {
  RetryPolicy retry(options_, RetryPolicy::Phase::kReading, "https://host/m", "");
  int count = 0;
  retry.Run(
      [&] {
        if (++count == 1) Fail(ECONNREFUSED, "refused");
        return true;
      },
      {});
  EXPECT_EQ(count, 2);
}

TEST_F(RetryPolicyTest, WaitsForTheFirstByteAsLongAsThereIsTimeOnceAnAttemptHasTimedOut) {
  RetryPolicy retry(options_, RetryPolicy::Phase::kReading, "https://host/m", "");
  std::vector<milliseconds> limits;
  retry.Run(
      [&] {
        limits.push_back(retry.Limits(100).first_byte);
        if (limits.size() == 1) Fail(ETIMEDOUT, "silent");
        return true;
      },
      {});
  EXPECT_EQ(limits.at(0), seconds(10));
  EXPECT_GT(limits.at(1), seconds(50));
  EXPECT_LE(limits.at(1), seconds(60));
}

TEST_F(RetryPolicyTest, LimitsImmediateRetries) {
  RetryPolicy retry(options_, RetryPolicy::Phase::kReading, "https://host/m", "bytes 0 to 9");
  EXPECT_THAT([&] { retry.Run([] { return false; }, {}); },
              ThrowsMessage<Error>("bytes 0 to 9: too many redirects"));
}

TEST_F(RetryPolicyTest, RetriesAnInvalidResponseAFewTimes) {
  RetryPolicy retry(options_, RetryPolicy::Phase::kReading, "https://host/m", "bytes 0 to 9");
  int count = 0;
  EXPECT_THAT(
      [&] { RunFailing(retry, InvalidResponse("response without headers"), count); },
      Throws<Error>(AllOf(
          Property(&Error::code, EREMOTEIO),
          Property(&Error::what, std::string("bytes 0 to 9: response without headers; gave up "
                                             "after 5 attempts")))));
  EXPECT_EQ(count, 5);
}

TEST_F(RetryPolicyTest, RetriesAServerOfAnotherProtocolAFewTimesButNotWhileOpening) {
  for (const auto& [phase, expected, sentence] :
       {std::tuple(RetryPolicy::Phase::kReading, 5, "expired; gave up after 5 attempts"),
        std::tuple(RetryPolicy::Phase::kOpening, 1, "expired")}) {
    RetryPolicy retry(options_, phase, "https://host/m", "");
    int count = 0;
    EXPECT_THAT([&] { RunFailing(retry, Error(EPROTO, "expired"), count); },
                ThrowsMessage<Error>(sentence));
    EXPECT_EQ(count, expected);
  }
}

TEST_F(RetryPolicyTest, RetriesInvalidResponsesAsLongAsOthersArrive) {
  RetryPolicy retry(options_, RetryPolicy::Phase::kReading, "https://host/m", "");
  constexpr uint64_t kMany = 64 << 10;  // The next error starts a new row.
  uint64_t received = 0;
  int count = 0;
  retry.Run(
      [&] {
        if (++count % 3 != 0) throw InvalidResponse("response without headers");
        retry.Received(received += kMany);
        if (received < 3 * kMany) throw InvalidResponse("response too long");
        return true;
      },
      {});
  EXPECT_EQ(count, 9);
}

TEST_F(RetryPolicyTest, EndsAtOnceIfItIsStopped) {
  RetryPolicy retry(options_, RetryPolicy::Phase::kReading, "https://host/m", "");
  std::stop_source source;
  EXPECT_THAT(
      [&] {
        retry.Run(
            [&]() -> bool {
              source.request_stop();
              throw TransientError(EREMOTEIO, "busy", seconds(60));
            },
            source.get_token());
      },
      Throws<Error>(Property(&Error::code, ECANCELED)));
}

TEST(TransientErrors, AreServerErrorsAndRateLimits) {
  EXPECT_THROW(ThrowIfTransient(Answer(503)), TransientError);
  EXPECT_THROW(ThrowIfTransient(Answer(429)), TransientError);
  EXPECT_THROW(ThrowIfTransient(Answer(408)), TransientError);
}

TEST(TransientErrors, AreNotPermanentStatusCodes) {
  EXPECT_NO_THROW(ThrowIfTransient(Answer(501)));
  EXPECT_NO_THROW(ThrowIfTransient(Answer(404)));
}

TEST(TransientErrors, ContainRetryAfter) {
  EXPECT_THAT(
      [] {
        ThrowIfTransient(Answer(503, {{"retry-after", "7"}}));
      },
      Throws<TransientError>(
          AllOf(Property(&TransientError::wait, milliseconds(7000)),
                Property(&TransientError::what, std::string("server returned status 503")))));
}

TEST(Url, HasNoSecretsInMessages) {
  EXPECT_EQ(WithoutQuery(ParseUrl("https://me:secret@host/dir/m.pth?token=secret#secret")),
            "https://host/dir/m.pth");
}

TEST(Url, HasUserAndPasswordDecoded) {
  const Url url = ParseUrl("https://m%40e:p%3A%2F@host/m.pth");
  EXPECT_EQ(url.user, "m@e");
  EXPECT_EQ(url.password, "p:/");
  EXPECT_EQ(url.text, "https://host/m.pth");
}

TEST(Url, KeepsTheQueryOnTheWire) {
  EXPECT_EQ(ParseUrl("http://host/m.pth?id=5#top").text, "http://host/m.pth?id=5");
}

TEST(Url, KeepsDotsAndCodesOfThePath) {
  EXPECT_EQ(ParseUrl("http://host/a/../b%2Fc").text, "http://host/a/../b%2Fc");
}

TEST(Url, EncodesBlanks) {
  EXPECT_EQ(ParseUrl("http://host/my model.pth").text, "http://host/my%20model.pth");
}

TEST(Url, HasTheDefaultPort) {
  EXPECT_EQ(ParseUrl("https://HOST/m").Origin(), "https://host:443");
  EXPECT_EQ(ParseUrl("http://host:8080/m").Origin(), "http://host:8080");
}

TEST(Url, IsPrivateIfItIsEncryptedOrStaysHere) {
  EXPECT_TRUE(ParseUrl("https://host/").IsPrivate());
  EXPECT_TRUE(ParseUrl("http://127.0.0.1:80/").IsPrivate());
  EXPECT_TRUE(ParseUrl("http://[::1]/").IsPrivate());
  EXPECT_FALSE(ParseUrl("http://host/").IsPrivate());
  EXPECT_FALSE(ParseUrl("http://127.example.com/").IsPrivate());
}

bool IsNeverProxiedAt(const char* url) { return IsNeverProxied(ParseUrl(url).host); }

TEST(Url, OfThisMachineIsNeverProxied) {
  for (const char* const url :
       {"http://127.0.0.1:80/", "http://127.9.9.9/", "http://127.1/", "http://2130706433/",
        "http://LocalHost/", "https://[::1]/", "http://[0:0::1]/", "http://[::ffff:127.0.0.1]/"}) {
    EXPECT_TRUE(IsNeverProxiedAt(url)) << url;
  }
}

TEST(Url, OfAMetadataServiceIsNeverProxied) {
  for (const char* const url : {"http://169.254.169.254/latest", "http://169.254.170.2/x",
                                "http://169.254.170.23/x", "http://[fd00:ec2::254]/",
                                "http://[fd00:0ec2:0::23]/", "http://[::ffff:169.254.169.254]/"}) {
    EXPECT_TRUE(IsNeverProxiedAt(url)) << url;
  }
}

TEST(Url, OfAnotherMachineMayBeProxied) {
  for (const char* const url :
       {"http://example.com/", "http://127.example.com/", "http://10.0.0.1/", "http://169.254.0.1/",
        "http://[fd00:ec3::254]/"}) {
    EXPECT_FALSE(IsNeverProxiedAt(url)) << url;
  }
}

TEST(Url, RequiresAHost) {
  EXPECT_THAT([] { ParseUrl("http:///m.pth"); }, ThrowsMessage<Error>("invalid URL: missing host"));
}

TEST(Url, OfAnotherSchemeIsRefused) {
  EXPECT_THAT([] { ParseUrl("ftp://host/m.pth"); },
              ThrowsMessage<Error>("unsupported URL scheme (expected http or https)"));
}

TEST(PercentEncoding, IsReversible) {
  EXPECT_EQ(PercentEncode("a b/ü%"), "a%20b%2F%C3%BC%25");
  EXPECT_EQ(PercentDecode("a%20b%2F%C3%BC%25"), "a b/ü%");
}

TEST(PercentEncoding, KeepsMalformedSequences) {
  EXPECT_EQ(PercentDecode("100%"), "100%");
  EXPECT_EQ(PercentDecode("%zz%+1"), "%zz%+1");
}

TEST(Netrc, HasTheLoginOfAHost) {
  const auto login = FindLogin(
      "machine other login a password b\nmachine host\n  login me\n  password secret\n", "host");
  ASSERT_TRUE(login);
  EXPECT_EQ(login->user, "me");
  EXPECT_EQ(login->password, "secret");
}

TEST(Netrc, HasADefault) {
  const auto login =
      FindLogin("machine other login a password b default login c password d", "host");
  ASSERT_TRUE(login);
  EXPECT_EQ(login->password, "d");
}

TEST(Netrc, UsesTheFirstEntry) {
  const auto login =
      FindLogin("machine host login a password b machine host login c password d", "host");
  ASSERT_TRUE(login);
  EXPECT_EQ(login->user, "a");
}

TEST(Netrc, HasPasswordsInQuotes) {
  EXPECT_EQ(FindLogin(R"(machine host login me password "a \"b\" c")", "host")->password,
            R"(a "b" c)");
}

TEST(Netrc, IgnoresCommentsAndMacros) {
  const auto login = FindLogin(
      "# machine host login no\nmacdef init\nmachine host login no\n\nmachine host login me "
      "password secret",
      "host");
  ASSERT_TRUE(login);
  EXPECT_EQ(login->user, "me");
}

TEST(Netrc, HasNoLoginForOtherHosts) {
  EXPECT_FALSE(FindLogin("machine other login a password b", "host"));
}

// Each test sets the environment variables that matter.
class AuthorizationTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = std::filesystem::temp_directory_path() / "ckptfs-http-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
    ::setenv("HOME", directory_.c_str(), 1);
    for (const char* variable : {"NETRC", "CKPTFS_HTTP_TOKEN", "HF_TOKEN"}) ::unsetenv(variable);
    options_.warn = [this](std::string_view what) { warnings_.emplace_back(what); };
  }
  void TearDown() override {
    home_ != nullptr ? ::setenv("HOME", home_copy_.c_str(), 1) : ::unsetenv("HOME");
    for (const char* variable : {"CKPTFS_HTTP_TOKEN", "HF_TOKEN"}) ::unsetenv(variable);
    std::filesystem::remove_all(directory_);
  }

  std::string WriteFile(const std::string& name, const std::string& text) const {
    std::ofstream(directory_ / name) << text;
    return directory_ / name;
  }

  // Returns the header of a request for the URL itself.
  std::string HeaderFor(const std::string& url) const {
    return Authorization(ParseUrl(url), options_).HeaderFor(ParseUrl(url));
  }

  SourceOptions options_;
  std::vector<std::string> warnings_;
  std::filesystem::path directory_;
  const char* const home_ = std::getenv("HOME");
  const std::string home_copy_ = home_ == nullptr ? "" : home_;
};

TEST_F(AuthorizationTest, IsEmptyWithoutCredentials) { EXPECT_EQ(HeaderFor("https://host/m"), ""); }

TEST_F(AuthorizationTest, IsTheUserOfTheUrl) {
  EXPECT_EQ(HeaderFor("http://Aladdin:open%20sesame@host/m"),
            "Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
}

TEST_F(AuthorizationTest, IsTheTokenInAFile) {
  options_.token_file = WriteFile("token", "abc.def\n");
  EXPECT_EQ(HeaderFor("https://host/m"), "Authorization: Bearer abc.def");
}

TEST_F(AuthorizationTest, DoesNotSendATokenInAFileOverHttp) {
  options_.token_file = WriteFile("token", "abc.def\n");
  EXPECT_THAT([&] { HeaderFor("http://host/m"); },
              ThrowsMessage<Error>(
                  "insecure URL: a token is sent over https or to this machine, not over http"));
}

TEST_F(AuthorizationTest, RejectsATokenWithALineFeed) {
  options_.token_file = WriteFile("token", "abc\r\nHost: other");
  EXPECT_THAT([&] { HeaderFor("https://host/m"); },
              ThrowsMessage<Error>("the token in '" + options_.token_file +
                                   "' is not one word of printable ASCII characters"));
}

TEST_F(AuthorizationTest, RejectsAnEmptyTokenFile) {
  options_.token_file = WriteFile("token", "\n");
  EXPECT_THAT([&] { HeaderFor("https://host/m"); },
              ThrowsMessage<Error>("the token in '" + options_.token_file + "' is empty"));
}

TEST_F(AuthorizationTest, ReportsAMissingTokenFile) {
  options_.token_file = directory_ / "missing";
  EXPECT_THAT([&] { HeaderFor("https://host/m"); },
              ThrowsMessage<Error>("cannot open the token file '" + options_.token_file +
                                   "': No such file or directory"));
}

TEST_F(AuthorizationTest, IsTheUsersNetrc) {
  WriteFile(".netrc", "machine host login Aladdin password \"open sesame\"");
  EXPECT_EQ(HeaderFor("https://host/m"), "Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
  EXPECT_EQ(HeaderFor("https://other/m"), "");
}

TEST_F(AuthorizationTest, IsANetrcThatIsNamed) {
  options_.netrc_file = WriteFile("logins", "default login Aladdin password \"open sesame\"");
  EXPECT_EQ(HeaderFor("https://host/m"), "Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
}

TEST_F(AuthorizationTest, ReportsAMissingNetrc) {
  options_.netrc_file = directory_ / "missing";
  EXPECT_THAT([&] { HeaderFor("https://host/m"); },
              ThrowsMessage<Error>("cannot open the netrc file '" + options_.netrc_file +
                                   "': No such file or directory"));
}

TEST_F(AuthorizationTest, IsTheTokenInTheEnvironment) {
  ::setenv("CKPTFS_HTTP_TOKEN", "abc", 1);
  EXPECT_EQ(HeaderFor("https://host/m"), "Authorization: Bearer abc");
}

TEST_F(AuthorizationTest, WarnsThatATokenOfTheEnvironmentIsNotSentOverHttp) {
  ::setenv("CKPTFS_HTTP_TOKEN", "abc", 1);
  EXPECT_EQ(HeaderFor("http://host/m?q"), "");
  EXPECT_THAT(warnings_,
              ElementsAre("http://host/m: the token in CKPTFS_HTTP_TOKEN is not sent over http"));
}

TEST_F(AuthorizationTest, SendsHfTokenToHuggingFaceOnly) {
  ::setenv("HF_TOKEN", "abc", 1);
  EXPECT_EQ(HeaderFor("https://huggingface.co/m"), "Authorization: Bearer abc");
  EXPECT_EQ(HeaderFor("https://nothuggingface.co/m"), "");
}

TEST_F(AuthorizationTest, IsForNoOtherHostPortOrScheme) {
  const Authorization authorization(ParseUrl("https://me:secret@host/m"), options_);
  EXPECT_NE(authorization.HeaderFor(ParseUrl("https://host:443/other")), "");
  EXPECT_EQ(authorization.HeaderFor(ParseUrl("https://host:444/m")), "");
  EXPECT_EQ(authorization.HeaderFor(ParseUrl("https://other/m")), "");
  EXPECT_EQ(authorization.HeaderFor(ParseUrl("http://host:443/m")), "");
}

TEST_F(AuthorizationTest, IsRenewedIfTheFileHasAnotherToken) {
  options_.token_file = WriteFile("token", "first");
  Authorization authorization(ParseUrl("https://host/m"), options_);
  EXPECT_FALSE(authorization.Renew());
  WriteFile("token", "second");
  EXPECT_TRUE(authorization.Renew());
  EXPECT_EQ(authorization.HeaderFor(ParseUrl("https://host/m")), "Authorization: Bearer second");
}

class WebAccessTest : public AuthorizationTest {
 protected:
  void SetUp() override {
    AuthorizationTest::SetUp();
    Start("https://me:secret@host/m.pth");
  }

  void Start(const std::string& url) {
    access_ = std::make_unique<WebAccess>(ParseUrl(url),
                                          std::make_shared<Authorization>(ParseUrl(url), options_));
  }

  bool Recover(const Response& response) {
    return access_->Recover(access_->Prepare({}), response);
  }

  std::unique_ptr<WebAccess> access_;
};

TEST_F(WebAccessTest, AddsHeadersAndCredentials) {
  const Request request = access_->Prepare({"Range: bytes=0-9"}).request;
  EXPECT_EQ(request.url, kStart);
  EXPECT_THAT(request.headers,
              ElementsAre("Range: bytes=0-9", "Authorization: Basic bWU6c2VjcmV0"));
}

TEST_F(WebAccessTest, RemembersTheTargetOfARedirect) {
  EXPECT_TRUE(Recover(RedirectTo("https://cdn/m?signature=1")));
  EXPECT_EQ(access_->Prepare({}).request.url, "https://cdn/m?signature=1");
}

TEST_F(WebAccessTest, SendsNoSecretsToTheTargetOfARedirect) {
  Recover(RedirectTo("https://cdn/m?signature=1"));
  EXPECT_THAT(access_->Prepare({}).request.headers, ElementsAre());
}

TEST_F(WebAccessTest, FollowsTheChainAgainOnceItsTargetIsRefused) {
  Recover(RedirectTo("https://cdn/m?signature=1"));
  access_->Succeeded();
  EXPECT_TRUE(Recover(Answer(403)));
  EXPECT_EQ(access_->Prepare({}).request.url, kStart);
}

TEST_F(WebAccessTest, FollowsTheChainAgainOnceForManyThreads) {
  Recover(RedirectTo("https://cdn/m?signature=1"));
  const PreparedRequest one = access_->Prepare({});
  const PreparedRequest other = access_->Prepare({});
  EXPECT_TRUE(access_->Recover(one, Answer(403)));
  Recover(RedirectTo("https://cdn/m?signature=2"));
  EXPECT_TRUE(access_->Recover(other, Answer(403)));
  EXPECT_EQ(access_->Prepare({}).request.url, "https://cdn/m?signature=2");
}

TEST_F(WebAccessTest, FailsIfTheTargetIsRefusedAgainAndAgain) {
  Recover(RedirectTo("https://cdn/m"));
  Recover(Answer(404));
  Recover(RedirectTo("https://cdn/m"));
  Recover(Answer(404));
  Recover(RedirectTo("https://cdn/m"));
  EXPECT_THAT(
      [&] { Recover(Answer(404)); },
      Throws<Error>(AllOf(Property(&Error::code, ENOENT),
                          Property(&Error::what, std::string("no such file on the server")))));
}

TEST_F(WebAccessTest, FollowsTenRedirectsInARow) {
  for (int i = 0; i < 10; ++i) Recover(RedirectTo("https://host/m.pth"));
  EXPECT_THAT([&] { Recover(RedirectTo("https://host/m.pth")); },
              Throws<Error>(
                  AllOf(Property(&Error::code, EREMOTEIO),
                        Property(&Error::what, std::string("too many redirects: more than 10")))));
}

TEST_F(WebAccessTest, RejectsRedirectsToHttp) {
  EXPECT_THAT([&] { Recover(RedirectTo("http://host/m.pth")); },
              ThrowsMessage<Error>("insecure redirect from https to http"));
}

TEST_F(WebAccessTest, RejectsRedirectsToOtherSchemes) {
  EXPECT_THAT(
      [&] { Recover(RedirectTo("ftp://host/m.pth")); },
      ThrowsMessage<Error>("invalid redirect: unsupported URL scheme (expected http or https)"));
}

TEST_F(WebAccessTest, ReportsWhichCredentialsFailed) {
  EXPECT_THAT(
      [&] { Recover(Answer(401)); },
      ThrowsMessage<Error>("authentication failed with the user and the password in the URL"));
}

TEST_F(WebAccessTest, ReportsHowToAuthenticate) {
  Start("https://host/m.pth");
  EXPECT_THAT([&] { Recover(Answer(401)); },
              ThrowsMessage<Error>("authentication required: put user and password into a netrc "
                                   "file, or a token into a file for -o token_file="));
}

TEST_F(WebAccessTest, RetriesWithARenewedToken) {
  options_.token_file = WriteFile("token", "first");
  Start("https://host/m.pth");
  WriteFile("token", "second");
  EXPECT_TRUE(Recover(Answer(401)));
  EXPECT_THAT(access_->Prepare({}).request.headers, ElementsAre("Authorization: Bearer second"));
  EXPECT_THAT([&] { Recover(Answer(401)); }, Throws<Error>(Property(&Error::code, EACCES)));
}

}  // namespace
}  // namespace ckptfs::http
