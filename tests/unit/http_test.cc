#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "parser/base/encoding.h"
#include "parser/base/error.h"
#include "parser/source/http/attempts.h"
#include "parser/source/http/authorization.h"
#include "parser/source/http/fields.h"
#include "parser/source/http/netrc.h"
#include "parser/source/http/patience.h"
#include "parser/source/http/url.h"
#include "parser/source/http/version.h"
#include "parser/source/http/web_access.h"

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

// --- Content-Range, Retry-After, ETag ----------------------------------------------------------

TEST(ContentRange, TellsWhichBytesCome) {
  const auto range = ParseContentRange("bytes 100-299/1000");
  ASSERT_TRUE(range);
  EXPECT_EQ(range->offset, 100U);
  EXPECT_EQ(range->length, 200U);
  EXPECT_EQ(range->total, 1000U);
}

TEST(ContentRange, TellsTheLengthWhenNoByteWasAskedForThatThereIs) {
  const auto range = ParseContentRange("bytes */1000");
  ASSERT_TRUE(range);
  EXPECT_EQ(range->length, 0U);
  EXPECT_EQ(range->total, 1000U);
}

TEST(ContentRange, MustLieWithinTheTotal) {
  EXPECT_FALSE(ParseContentRange("bytes 0-1000/1000"));
  EXPECT_TRUE(ParseContentRange("bytes 0-999/1000"));
}

TEST(ContentRange, MustNotRunBackwards) { EXPECT_FALSE(ParseContentRange("bytes 5-4/10")); }

TEST(ContentRange, MustTellTheTotal) { EXPECT_FALSE(ParseContentRange("bytes 0-9/*")); }

TEST(ContentRange, MustNotOverflow) {
  EXPECT_FALSE(ParseContentRange("bytes 0-9/18446744073709551616"));
  EXPECT_FALSE(ParseContentRange("bytes 0-9/9223372036854775808"));
  EXPECT_TRUE(ParseContentRange("bytes 0-9/9223372036854775807"));
}

TEST(ContentRange, MustHaveNothingAfterIt) {
  EXPECT_FALSE(ParseContentRange("bytes 0-9/10, bytes 20-29/30"));
}

TEST(ContentRange, MustBeInBytes) { EXPECT_FALSE(ParseContentRange("items 0-9/10")); }

TEST(RetryAfter, IsANumberOfSeconds) { EXPECT_EQ(ParseRetryAfter("120", 0), seconds(120)); }

TEST(RetryAfter, IsADateByTheClockOfTheServer) {
  EXPECT_EQ(ParseRetryAfter("Sun, 06 Nov 1994 08:49:37 GMT", 784111777 - 5), seconds(5));
}

TEST(RetryAfter, IsNothingOnceTheDateHasPassed) {
  EXPECT_EQ(ParseRetryAfter("Sun, 06 Nov 1994 08:49:37 GMT", 784111777 + 5), seconds(0));
}

TEST(RetryAfter, IsADayAtMost) {
  EXPECT_EQ(ParseRetryAfter("9223372036854775807", 0), seconds(86'400));
}

TEST(RetryAfter, IsNothingIfItIsNeitherNumberNorDate) {
  EXPECT_EQ(ParseRetryAfter("soon", 0), std::nullopt);
  EXPECT_EQ(ParseRetryAfter("-1", 0), std::nullopt);
}

TEST(EntityTag, IsStrongInQuotes) {
  EXPECT_TRUE(IsStrongTag("\"33a64df5\""));
  EXPECT_TRUE(IsStrongTag("\"\""));
}

TEST(EntityTag, IsNotStrongIfItSaysSo) { EXPECT_FALSE(IsStrongTag("W/\"33a64df5\"")); }

TEST(EntityTag, IsNotStrongIfItIsMalformed) {
  EXPECT_FALSE(IsStrongTag("\""));
  EXPECT_FALSE(IsStrongTag("33a64df5"));
  EXPECT_FALSE(IsStrongTag("\"a\", \"b\""));
}

// --- Versions ----------------------------------------------------------------------------------

class Part : public testing::Test {
 protected:
  Response Good() const {
    return Answer(
        206, {{"content-range", "bytes 10-19/100"}, {"content-length", "10"}, {"etag", "\"v1\""}});
  }

  // The answer with another value of a header that it has, or without the header.
  Response GoodBut(const std::string& name, const std::string& value) const {
    Response response = Good();
    for (auto& [known, now] : response.headers) {
      if (known == name) now = value;
    }
    return response;
  }

  void Require(const Response& response) const { RequirePart(response, range_, version_); }

  const ByteRange range_{.offset = 10, .length = 10};
  const Version version_{.size = 100, .tag = "\"v1\"", .last_modified = ""};
};

TEST_F(Part, IsTakenIfItIsWhatWasAskedFor) { EXPECT_NO_THROW(Require(Good())); }

TEST_F(Part, OfAnotherVersionIsRefusedForEver) {
  EXPECT_THAT(
      [&] { Require(GoodBut("etag", "\"v2\"")); },
      Throws<Error>(AllOf(Property(&Error::code, ESTALE),
                          Property(&Error::what, std::string("the object has changed since it was "
                                                             "opened")))));
}

TEST_F(Part, WithoutATagCannotBeToldFromAnotherVersion) {
  EXPECT_THAT([&] { Require(GoodBut("etag", "")); }, Throws<Error>(Property(&Error::code, ESTALE)));
}

TEST_F(Part, OfALongerObjectWithTheSameStrongTagMayComeRightNextTime) {
  EXPECT_THAT([&] { Require(GoodBut("content-range", "bytes 10-19/101")); },
              ThrowsMessage<Fault>("the server sends 'bytes 10-19/101' instead"));
}

TEST_F(Part, OfALongerObjectIsOfAnotherVersionIfTheTagIsWeak) {
  const Version weak{.size = 100, .tag = "W/\"v1\"", .last_modified = ""};
  Response response = GoodBut("content-range", "bytes 10-19/101");
  for (auto& [name, value] : response.headers) {
    if (name == "etag") value = weak.tag;
  }
  EXPECT_THAT([&] { RequirePart(response, range_, weak); },
              Throws<Error>(Property(&Error::code, ESTALE)));
}

TEST_F(Part, ThatIsAnotherOneMayComeRightNextTime) {
  EXPECT_THAT([&] { Require(GoodBut("content-range", "bytes 11-20/100")); },
              ThrowsMessage<Fault>("the server sends 'bytes 11-20/100' instead"));
}

TEST_F(Part, ThatDoesNotSayWhichOneItIsMayComeRightNextTime) {
  EXPECT_THAT([&] { Require(GoodBut("content-range", "")); },
              ThrowsMessage<Fault>("the server sends no range instead"));
}

TEST_F(Part, OfAnotherLengthMayComeRightNextTime) {
  EXPECT_THAT([&] { Require(GoodBut("content-length", "9")); },
              ThrowsMessage<Fault>("the server announces '9' bytes instead of 10"));
}

TEST_F(Part, ThatIsAllBytesMayComeRightNextTime) {
  Response response = Good();
  response.status = 200;
  EXPECT_THAT([&] { Require(response); },
              ThrowsMessage<Fault>("the server sends all bytes instead of a part"));
}

TEST_F(Part, InACodingHasOtherBytes) {
  Response response = Good();
  response.headers.emplace_back("content-encoding", "gzip");
  EXPECT_THAT([&] { Require(response); },
              ThrowsMessage<Fault>("the server sends bytes in the coding 'gzip'"));
}

TEST(Version, IsAskedForByItsTag) {
  const Version version{.size = 1, .tag = "\"v1\"", .last_modified = "yesterday"};
  EXPECT_EQ(version.Condition(), "If-Match: \"v1\"");
}

TEST(Version, IsAskedForByItsTimeIfItsTagIsWeak) {
  const Version version{.size = 1, .tag = "W/\"v1\"", .last_modified = "yesterday"};
  EXPECT_EQ(version.Condition(), "If-Unmodified-Since: yesterday");
}

TEST(Version, IsNotAskedForIfThereIsNothingToAskBy) {
  EXPECT_EQ((Version{.size = 1, .tag = "", .last_modified = ""}).Condition(), "");
}

TEST(Version, HasNoTagThatIsLongerThanAnyServerWrites) {
  const std::string longest = '"' + std::string(998, 'x') + '"';
  EXPECT_EQ(VersionOf({.status = 206, .headers = {{"etag", longest}}}, 1).tag, longest);
  EXPECT_EQ(VersionOf({.status = 206, .headers = {{"etag", longest + "x"}}}, 1).tag, "");
}

// --- Trying again ------------------------------------------------------------------------------

class PatienceTest : public testing::Test {
 protected:
  static Patience::Clock::time_point At(seconds time) {
    return Patience::Clock::time_point() + time;
  }

  Patience patience_{seconds(60), At(seconds(0)), [] { return 0.5; }};
};

TEST_F(PatienceTest, WaitsTwiceAsLongEachTimeUpToTenSeconds) {
  std::vector<int64_t> waits;
  for (int i = 0; i < 9; ++i) waits.push_back(patience_.Wait(At(seconds(0)), {})->count());
  EXPECT_THAT(waits, ElementsAre(50, 100, 200, 400, 800, 1600, 3200, 5000, 5000));
}

TEST_F(PatienceTest, WaitsAsLongAsTheServerAsks) {
  EXPECT_EQ(patience_.Wait(At(seconds(0)), seconds(7)), seconds(7));
}

TEST_F(PatienceTest, DoesNotWaitLongerThanThereIsTime) {
  EXPECT_EQ(patience_.Wait(At(seconds(58)), seconds(7)), seconds(2));
}

TEST_F(PatienceTest, EndsWhenTheTimeIsUp) {
  EXPECT_EQ(patience_.Wait(At(seconds(60)), seconds(7)), std::nullopt);
}

TEST_F(PatienceTest, GrowsWithWhatArrives) {
  patience_.Received(uint64_t{160} << 10U);
  EXPECT_EQ(patience_.Left(At(seconds(60))), seconds(10));
}

TEST_F(PatienceTest, DoesNotGrowWithWhatArrivesAgain) {
  patience_.Received(uint64_t{160} << 10U);
  patience_.Received(uint64_t{100} << 10U);
  EXPECT_EQ(patience_.Left(At(seconds(60))), seconds(10));
}

TEST_F(PatienceTest, TakesAFaultAfterManyBytesForANewOne) {
  patience_.Wait(At(seconds(0)), {});
  patience_.Wait(At(seconds(0)), {});
  patience_.Received(64 << 10U);
  EXPECT_EQ(patience_.Wait(At(seconds(0)), {}), milliseconds(50));
}

TEST_F(PatienceTest, TakesAFaultAfterFewBytesForTheSame) {
  patience_.Wait(At(seconds(0)), {});
  patience_.Received(1000);
  EXPECT_EQ(patience_.Wait(At(seconds(0)), {}), milliseconds(100));
}

class AttemptsTest : public testing::Test {
 protected:
  AttemptsTest() {
    options_.timeout = seconds(60);
    options_.warn = [this](std::string_view what) { warnings_.emplace_back(what); };
  }

  SourceOptions options_;
  std::vector<std::string> warnings_;
};

TEST_F(AttemptsTest, GoOnAfterAFaultAndSaySo) {
  Attempts attempts(options_, Attempts::Phase::kReading, "https://host/m", "bytes 0 to 9");
  int count = 0;
  attempts.Run(
      [&] {
        if (++count == 1) Fail(ECONNRESET, "connection reset after 5 bytes");
        return true;
      },
      {});
  EXPECT_EQ(count, 2);
  EXPECT_THAT(warnings_, ElementsAre("https://host/m: bytes 0 to 9: connection reset after 5 "
                                     "bytes; trying again"));
}

TEST_F(AttemptsTest, EndWithTheLastFaultOnceTheTimeIsUp) {
  options_.timeout = seconds(0);
  Attempts attempts(options_, Attempts::Phase::kReading, "https://host/m", "bytes 0 to 9");
  EXPECT_THAT([&] { attempts.Run([]() -> bool { Fail(ECONNRESET, "connection reset"); }, {}); },
              Throws<Error>(AllOf(
                  Property(&Error::code, EREMOTEIO),
                  Property(&Error::what, std::string("bytes 0 to 9: connection reset; gave up "
                                                     "after 0 s")))));
}

TEST_F(AttemptsTest, EndWithATimeoutIfThatWasTheLastFault) {
  options_.timeout = seconds(0);
  Attempts attempts(options_, Attempts::Phase::kReading, "https://host/m", "");
  EXPECT_THAT([&] { attempts.Run([]() -> bool { Fail(ETIMEDOUT, "silent"); }, {}); },
              Throws<Error>(Property(&Error::code, ETIMEDOUT)));
}

TEST_F(AttemptsTest, ToOpenEndAtOnceIfNobodyIsThere) {
  Attempts attempts(options_, Attempts::Phase::kOpening, "https://host/m", "");
  EXPECT_THAT([&] { attempts.Run([]() -> bool { Fail(ECONNREFUSED, "refused"); }, {}); },
              Throws<Error>(Property(&Error::code, ECONNREFUSED)));
}

TEST_F(AttemptsTest, ToReadGoOnIfNobodyIsThere) {
  Attempts attempts(options_, Attempts::Phase::kReading, "https://host/m", "");
  int count = 0;
  attempts.Run(
      [&] {
        if (++count == 1) Fail(ECONNREFUSED, "refused");
        return true;
      },
      {});
  EXPECT_EQ(count, 2);
}

TEST_F(AttemptsTest, ThatOnlySendToAndFroEnd) {
  Attempts attempts(options_, Attempts::Phase::kReading, "https://host/m", "bytes 0 to 9");
  EXPECT_THAT([&] { attempts.Run([] { return false; }, {}); },
              ThrowsMessage<Error>("bytes 0 to 9: the server sends us to and fro"));
}

TEST_F(AttemptsTest, EndAtOnceWhenTheyAreStopped) {
  Attempts attempts(options_, Attempts::Phase::kReading, "https://host/m", "");
  std::stop_source source;
  EXPECT_THAT(
      [&] {
        attempts.Run(
            [&]() -> bool {
              source.request_stop();
              throw Fault(EREMOTEIO, "busy", seconds(60));
            },
            source.get_token());
      },
      Throws<Error>(Property(&Error::code, ECANCELED)));
}

TEST(Faults, AreWhatAServerMayDoBetterInAWhile) {
  EXPECT_THROW(RequireNoFault(Answer(503)), Fault);
  EXPECT_THROW(RequireNoFault(Answer(429)), Fault);
  EXPECT_THROW(RequireNoFault(Answer(408)), Fault);
}

TEST(Faults, AreNotWhatAServerCannotDo) {
  EXPECT_NO_THROW(RequireNoFault(Answer(501)));
  EXPECT_NO_THROW(RequireNoFault(Answer(404)));
}

TEST(Faults, TellHowLongToWait) {
  EXPECT_THAT(
      [] {
        RequireNoFault(Answer(503, {{"retry-after", "7"}}));
      },
      Throws<Fault>(
          AllOf(Property(&Fault::wait, milliseconds(7000)),
                Property(&Fault::what, std::string("the server answers with status 503")))));
}

// --- URLs --------------------------------------------------------------------------------------

TEST(Url, ShowsNoSecrets) {
  EXPECT_EQ(Shown(ParseUrl("https://me:secret@host/dir/m.pth?token=secret#secret")),
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

TEST(Url, TellsTheUsualPort) {
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

TEST(Url, OfThisMachineIsNotForAProxy) {
  for (const char* const url :
       {"http://127.0.0.1:80/", "http://127.9.9.9/", "http://127.1/", "http://2130706433/",
        "http://LocalHost/", "https://[::1]/", "http://[0:0::1]/", "http://[::ffff:127.0.0.1]/"}) {
    EXPECT_TRUE(IsNeverProxiedAt(url)) << url;
  }
}

TEST(Url, OfCredentialsOfAMachineIsNotForAProxy) {
  for (const char* const url : {"http://169.254.169.254/latest", "http://169.254.170.2/x",
                                "http://169.254.170.23/x", "http://[fd00:ec2::254]/",
                                "http://[fd00:0ec2:0::23]/", "http://[::ffff:169.254.169.254]/"}) {
    EXPECT_TRUE(IsNeverProxiedAt(url)) << url;
  }
}

TEST(Url, OfAnotherMachineIsForAProxy) {
  for (const char* const url :
       {"http://example.com/", "http://127.example.com/", "http://10.0.0.1/", "http://169.254.0.1/",
        "http://[fd00:ec3::254]/"}) {
    EXPECT_FALSE(IsNeverProxiedAt(url)) << url;
  }
}

TEST(Url, MustNameAHost) {
  EXPECT_THAT([] { ParseUrl("http:///m.pth"); }, ThrowsMessage<Error>("the URL names no host"));
}

TEST(Url, OfAnotherSchemeIsRefused) {
  EXPECT_THAT([] { ParseUrl("ftp://host/m.pth"); },
              ThrowsMessage<Error>("the URL is neither of http nor of https"));
}

TEST(PercentCodes, AreDecodedAsTheyAreEncoded) {
  EXPECT_EQ(PercentEncoded("a b/ü%"), "a%20b%2F%C3%BC%25");
  EXPECT_EQ(PercentDecoded("a%20b%2F%C3%BC%25"), "a b/ü%");
}

TEST(PercentCodes, ThatAreNoneAreLeftAsTheyAre) {
  EXPECT_EQ(PercentDecoded("100%"), "100%");
  EXPECT_EQ(PercentDecoded("%zz%+1"), "%zz%+1");
}

// --- netrc -------------------------------------------------------------------------------------

TEST(Netrc, HasTheLoginOfAHost) {
  const auto login = FindLogin(
      "machine other login a password b\n"
      "machine host\n  login me\n  password secret\n",
      "host");
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

TEST(Netrc, CountsTheFirstEntry) {
  const auto login =
      FindLogin("machine host login a password b machine host login c password d", "host");
  ASSERT_TRUE(login);
  EXPECT_EQ(login->user, "a");
}

TEST(Netrc, HasPasswordsInQuotes) {
  EXPECT_EQ(FindLogin(R"(machine host login me password "a \"b\" c")", "host")->password,
            R"(a "b" c)");
}

TEST(Netrc, PassesOverCommentsAndMacros) {
  const auto login = FindLogin(
      "# machine host login no\nmacdef init\nmachine host login no\n\n"
      "machine host login me password secret",
      "host");
  ASSERT_TRUE(login);
  EXPECT_EQ(login->user, "me");
}

TEST(Netrc, HasNothingForHostsThatItDoesNotName) {
  EXPECT_FALSE(FindLogin("machine other login a password b", "host"));
}

// --- Authorization -----------------------------------------------------------------------------

// Variables of the environment that count are as each test sets them.
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

  // The header that goes with a request for the URL itself.
  std::string HeaderFor(const std::string& url) const {
    return Authorization(ParseUrl(url), options_).HeaderFor(ParseUrl(url));
  }

  SourceOptions options_;
  std::vector<std::string> warnings_;
  std::filesystem::path directory_;
  const char* const home_ = std::getenv("HOME");
  const std::string home_copy_ = home_ == nullptr ? "" : home_;
};

TEST_F(AuthorizationTest, IsNothingUnlessTheUserHasSomething) {
  EXPECT_EQ(HeaderFor("https://host/m"), "");
}

TEST_F(AuthorizationTest, IsTheUserOfTheUrl) {
  EXPECT_EQ(HeaderFor("http://Aladdin:open%20sesame@host/m"),
            "Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
}

TEST_F(AuthorizationTest, IsTheTokenInAFile) {
  options_.token_file = WriteFile("token", "abc.def\n");
  EXPECT_EQ(HeaderFor("https://host/m"), "Authorization: Bearer abc.def");
}

TEST_F(AuthorizationTest, SendsATokenInAFileOverNoHttp) {
  options_.token_file = WriteFile("token", "abc.def\n");
  EXPECT_THAT([&] { HeaderFor("http://host/m"); },
              ThrowsMessage<Error>("a token is sent over https or to this machine, but not over "
                                   "http"));
}

TEST_F(AuthorizationTest, RefusesATokenThatWouldLeaveItsHeader) {
  options_.token_file = WriteFile("token", "abc\r\nHost: other");
  EXPECT_THAT([&] { HeaderFor("https://host/m"); },
              ThrowsMessage<Error>("the token in '" + options_.token_file +
                                   "' is not one word of printable ASCII characters"));
}

TEST_F(AuthorizationTest, RefusesATokenFileThatIsEmpty) {
  options_.token_file = WriteFile("token", "\n");
  EXPECT_THAT([&] { HeaderFor("https://host/m"); },
              ThrowsMessage<Error>("the token in '" + options_.token_file + "' is empty"));
}

TEST_F(AuthorizationTest, NamesATokenFileThatIsMissing) {
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

TEST_F(AuthorizationTest, NamesANetrcThatIsMissing) {
  options_.netrc_file = directory_ / "missing";
  EXPECT_THAT([&] { HeaderFor("https://host/m"); },
              ThrowsMessage<Error>("cannot open the netrc file '" + options_.netrc_file +
                                   "': No such file or directory"));
}

TEST_F(AuthorizationTest, IsTheTokenInTheEnvironment) {
  ::setenv("CKPTFS_HTTP_TOKEN", "abc", 1);
  EXPECT_EQ(HeaderFor("https://host/m"), "Authorization: Bearer abc");
}

TEST_F(AuthorizationTest, SendsATokenOfTheEnvironmentOverNoHttpAndSaysSo) {
  ::setenv("CKPTFS_HTTP_TOKEN", "abc", 1);
  EXPECT_EQ(HeaderFor("http://host/m?q"), "");
  EXPECT_THAT(warnings_, ElementsAre("http://host/m: the token in CKPTFS_HTTP_TOKEN is not sent "
                                     "over http"));
}

TEST_F(AuthorizationTest, SendsTheTokenOfHuggingFaceToItAlone) {
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

// --- Redirects ---------------------------------------------------------------------------------

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

TEST_F(WebAccessTest, SendsWhatItIsAskedTo) {
  const Request request = access_->Prepare({"Range: bytes=0-9"});
  EXPECT_EQ(request.url, kStart);
  EXPECT_THAT(request.headers,
              ElementsAre("Range: bytes=0-9", "Authorization: Basic bWU6c2VjcmV0"));
}

TEST_F(WebAccessTest, RemembersWhereARedirectLed) {
  EXPECT_TRUE(Recover(RedirectTo("https://cdn/m?signature=1")));
  EXPECT_EQ(access_->Prepare({}).url, "https://cdn/m?signature=1");
}

TEST_F(WebAccessTest, SendsNoSecretsToWhereARedirectLed) {
  Recover(RedirectTo("https://cdn/m?signature=1"));
  EXPECT_THAT(access_->Prepare({}).headers, ElementsAre());
}

TEST_F(WebAccessTest, GoesTheWayAgainOnceItsEndIsRefused) {
  Recover(RedirectTo("https://cdn/m?signature=1"));
  access_->Succeeded();
  EXPECT_TRUE(Recover(Answer(403)));
  EXPECT_EQ(access_->Prepare({}).url, kStart);
}

TEST_F(WebAccessTest, GoesTheWayAgainOnceForManyThreads) {
  Recover(RedirectTo("https://cdn/m?signature=1"));
  const Request one = access_->Prepare({});
  const Request other = access_->Prepare({});
  EXPECT_TRUE(access_->Recover(one, Answer(403)));
  Recover(RedirectTo("https://cdn/m?signature=2"));
  EXPECT_TRUE(access_->Recover(other, Answer(403)));
  EXPECT_EQ(access_->Prepare({}).url, "https://cdn/m?signature=2");
}

TEST_F(WebAccessTest, GivesUpIfTheWayLeadsNowhereAgain) {
  Recover(RedirectTo("https://cdn/m"));
  Recover(Answer(404));
  Recover(RedirectTo("https://cdn/m"));
  Recover(Answer(404));
  Recover(RedirectTo("https://cdn/m"));
  EXPECT_THAT(
      [&] { Recover(Answer(404)); },
      Throws<Error>(AllOf(Property(&Error::code, ENOENT),
                          Property(&Error::what, std::string("the server has no such file")))));
}

TEST_F(WebAccessTest, FollowsTenRedirectsInARow) {
  for (int i = 0; i < 10; ++i) Recover(RedirectTo("https://host/m.pth"));
  EXPECT_THAT([&] { Recover(RedirectTo("https://host/m.pth")); },
              Throws<Error>(AllOf(
                  Property(&Error::code, EREMOTEIO),
                  Property(&Error::what, std::string("the server redirects more than 10 times")))));
}

TEST_F(WebAccessTest, DoesNotLeaveHttps) {
  EXPECT_THAT([&] { Recover(RedirectTo("http://host/m.pth")); },
              ThrowsMessage<Error>("the server redirects from https to http, where anybody could "
                                   "read along"));
}

TEST_F(WebAccessTest, DoesNotLeaveTheWeb) {
  EXPECT_THAT([&] { Recover(RedirectTo("ftp://host/m.pth")); },
              ThrowsMessage<Error>("the server redirects to nowhere: the URL is neither of http "
                                   "nor of https"));
}

TEST_F(WebAccessTest, SaysWhatIsNotAccepted) {
  EXPECT_THAT([&] { Recover(Answer(401)); },
              ThrowsMessage<Error>("the server does not accept the user and the password in the "
                                   "URL"));
}

TEST_F(WebAccessTest, SaysHowToBeAuthorised) {
  Start("https://host/m.pth");
  EXPECT_THAT([&] { Recover(Answer(401)); },
              ThrowsMessage<Error>("needs authorisation: put user and password into a netrc file, "
                                   "or name a file with a token by -o token_file="));
}

TEST_F(WebAccessTest, TriesATokenThatIsNewerThanTheRefusedOne) {
  options_.token_file = WriteFile("token", "first");
  Start("https://host/m.pth");
  WriteFile("token", "second");
  EXPECT_TRUE(Recover(Answer(401)));
  EXPECT_THAT(access_->Prepare({}).headers, ElementsAre("Authorization: Bearer second"));
  EXPECT_THAT([&] { Recover(Answer(401)); }, Throws<Error>(Property(&Error::code, EACCES)));
}

}  // namespace
}  // namespace ckptfs::http
