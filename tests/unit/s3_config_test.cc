#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>

#include "parser/base/error.h"
#include "parser/source/s3/config.h"
#include "parser/source/s3/credentials.h"
#include "parser/source/s3/location.h"
#include "parser/source/s3/machine_credentials.h"

namespace ckptfs::s3 {
namespace {

using testing::AllOf;
using testing::Property;
using testing::Throws;
using testing::ThrowsMessage;

// A user with a home directory of his own.
class User : public testing::Test {
 protected:
  User() : home_(testing::TempDir() + "/ckptfs-s3.XXXXXX") {
    if (::mkdtemp(home_.data()) == nullptr) ADD_FAILURE() << "no directory for tests";
    variables_["HOME"] = home_;
  }
  void TearDown() override { std::filesystem::remove_all(home_); }

  void Write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = std::filesystem::path(home_) / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }

  void Set(const std::string& name, std::string value) { variables_[name] = std::move(value); }

  Config Read() const {
    const auto variable = [variables = variables_](const std::string& name) {
      const auto found = variables.find(name);
      return found == variables.end() ? std::string() : found->second;
    };
    return {variable, options_};
  }

  Endpoint ReadEndpoint() const { return ResolveEndpoint(Read(), options_); }

  SourceOptions options_;
  std::string home_;

 private:
  std::map<std::string, std::string> variables_;
};

using S3Config = User;
using S3Endpoint = User;

TEST_F(S3Config, IsEmptyByDefault) {
  const Config config = Read();
  EXPECT_EQ(config.profile(), "default");
  EXPECT_EQ(config.region(), "");
  EXPECT_EQ(config.EndpointOf("s3"), "");
  EXPECT_FALSE(config.is_profile_explicit());
  EXPECT_TRUE(config.s3cmd().empty());
}

TEST_F(S3Config, HasAProfileInEitherFile) {
  Write(".aws/credentials", "[p]\naws_access_key_id = AK\n");
  Write(".aws/config", "[profile p]\nregion = eu-west-1\n[p]\nregion = wrong\n");
  Set("AWS_PROFILE", "p");
  const Config config = Read();
  EXPECT_EQ(config.Setting("p", "aws_access_key_id"), "AK");
  EXPECT_EQ(config.region(), "eu-west-1");
}

TEST_F(S3Config, HasAProfileWithBlanksInQuotes) {
  Write(".aws/config", "[profile \"my own\"]\nregion = r\n");
  options_.s3_profile = "my own";
  EXPECT_EQ(Read().region(), "r");
  EXPECT_TRUE(Read().is_profile_explicit());
}

TEST_F(S3Config, HasTheDefaultProfileUnderBothNames) {
  Write(".aws/config", "[default]\nregion = a\n");
  EXPECT_EQ(Read().region(), "a");
  Write(".aws/config", "[default]\nregion = a\n[profile default]\nregion = b\n");
  EXPECT_EQ(Read().region(), "b");
}

TEST_F(S3Config, PrefersTheFileForSecrets) {
  Write(".aws/credentials", "[default]\nregion = secret\n");
  Write(".aws/config", "[default]\nregion = config\n");
  EXPECT_EQ(Read().Setting("default", "region"), "secret");
}

TEST_F(S3Config, HasThePathsOfTheEnvironment) {
  Write("c", "[default]\nregion = here\n");
  Set("AWS_CONFIG_FILE", "~/c");
  EXPECT_EQ(Read().region(), "here");
  EXPECT_EQ(Read().credentials_file(), home_ + "/.aws/credentials");
}

TEST_F(S3Config, PrefersTheRegionOfTheOptionThenOfTheEnvironment) {
  Write(".aws/config", "[default]\nregion = file\n");
  Set("AWS_DEFAULT_REGION", "older");
  EXPECT_EQ(Read().region(), "older");
  Set("AWS_REGION", "newer");
  EXPECT_EQ(Read().region(), "newer");
  options_.s3_region = "option";
  EXPECT_EQ(Read().region(), "option");
}

TEST_F(S3Config, RequiresTheRequestedProfile) {
  Set("AWS_PROFILE", "p");
  EXPECT_THAT([&] { Read(); },
              Throws<Error>(AllOf(
                  Property(&Error::code, EACCES),
                  Property(&Error::what, "profile 'p' not found in " + home_ + "/.aws/config or " +
                                             home_ + "/.aws/credentials"))));
}

TEST_F(S3Config, NamesTheMalformedFile) {
  Write(".aws/credentials", "[default]\nsecret\n");
  EXPECT_THAT([&] { Read(); },
              ThrowsMessage<Error>(home_ + "/.aws/credentials: line 2 is neither a section nor a "
                                           "setting"));
}

TEST_F(S3Config, OfS3cmdRequiresBothKeys) {
  Write(".s3cfg", "[default]\naccess_key = AK\nsecret_key =\nhost_base = h\n");
  EXPECT_TRUE(Read().s3cmd().empty());
  Write(".s3cfg", "[default]\naccess_key = AK\nsecret_key = SK\nhost_base = h\n");
  EXPECT_EQ(ini::Find(Read().s3cmd(), "host_base"), "h");
}

std::string UrlOf(const Endpoint& endpoint, std::string_view bucket, std::string_view region) {
  const BucketAddress address = ResolveBucket(endpoint, bucket, region);
  EXPECT_TRUE(address.origin.ends_with("://" + address.host));
  return address.origin + address.path;
}

TEST_F(S3Endpoint, IsAHostOfTheRegionByDefault) {
  const Endpoint endpoint = ReadEndpoint();
  EXPECT_TRUE(endpoint.is_aws());
  EXPECT_EQ(UrlOf(endpoint, "my-bucket", "eu-central-1"),
            "https://my-bucket.s3.eu-central-1.amazonaws.com/");
  EXPECT_EQ(UrlOf(endpoint, "my-bucket", "cn-north-1"),
            "https://my-bucket.s3.cn-north-1.amazonaws.com.cn/");
}

TEST_F(S3Endpoint, HasBucketsThatAreNotHostLabelsInThePath) {
  EXPECT_EQ(UrlOf({}, "my.bucket", "us-east-1"), "https://s3.us-east-1.amazonaws.com/my.bucket/");
  EXPECT_EQ(UrlOf({}, "MyBucket", "us-east-1"), "https://s3.us-east-1.amazonaws.com/MyBucket/");
  EXPECT_EQ(UrlOf({}, "-b-", "us-east-1"), "https://s3.us-east-1.amazonaws.com/-b-/");
}

TEST_F(S3Endpoint, HasTheBucketInThePathByOption) {
  options_.s3_path_style = true;
  EXPECT_EQ(UrlOf(ReadEndpoint(), "bucket", "us-east-1"),
            "https://s3.us-east-1.amazonaws.com/bucket/");
}

TEST_F(S3Endpoint, OfAnotherServiceHasTheBucketInThePath) {
  options_.s3_endpoint = "http://127.0.0.1:9000/base/";
  EXPECT_EQ(UrlOf(ReadEndpoint(), "bucket", "us-east-1"), "http://127.0.0.1:9000/base/bucket/");
}

TEST_F(S3Endpoint, OfAnotherServiceMayHaveTheBucketInTheHost) {
  Write(".aws/config", "[default]\ns3 =\n  addressing_style = virtual\n");
  options_.s3_endpoint = "https://objects.example";
  EXPECT_EQ(UrlOf(ReadEndpoint(), "bucket", "us-east-1"), "https://bucket.objects.example/");
}

TEST_F(S3Endpoint, OfCoreWeaveHasTheBucketInTheHost) {
  options_.s3_endpoint = "cwobject.com";
  EXPECT_EQ(UrlOf(ReadEndpoint(), "bucket", "us-east-1"), "https://bucket.cwobject.com/");
}

TEST_F(S3Endpoint, OmitsTheDefaultPort) {
  EXPECT_EQ(ParseEndpoint("https://h:443").host, "h");
  EXPECT_EQ(ParseEndpoint("http://h:80/").host, "h");
  EXPECT_EQ(ParseEndpoint("http://h:443").host, "h:443");
}

TEST_F(S3Endpoint, IsHttpsByDefault) {
  EXPECT_EQ(ParseEndpoint("h:9000").scheme, "https");
  EXPECT_EQ(ParseEndpoint("h:9000").host, "h:9000");
}

TEST_F(S3Endpoint, ShowsNoUserInMessages) {
  EXPECT_THAT([] { ParseEndpoint("https://user:secret@h"); },
              ThrowsMessage<Error>(
                  "invalid S3 endpoint with a user or a query (expected https://host:port)"));
}

TEST_F(S3Endpoint, RequiresHttpOrHttps) {
  EXPECT_THAT([] { ParseEndpoint("ftp://h"); },
              ThrowsMessage<Error>("invalid S3 endpoint 'ftp://h' (expected https://host:port)"));
  EXPECT_THAT([] { ParseEndpoint("https://"); },
              ThrowsMessage<Error>("invalid S3 endpoint 'https://' (expected https://host:port)"));
  EXPECT_THAT([] { ParseEndpoint("https://h/?x"); },
              ThrowsMessage<Error>(
                  "invalid S3 endpoint with a user or a query (expected https://host:port)"));
}

TEST_F(S3Endpoint, PrefersOptionThenEnvironmentThenProfile) {
  Write(".aws/config", "[default]\nendpoint_url = https://all\n");
  EXPECT_EQ(ReadEndpoint().host, "all");
  Write(".aws/config",
        "[default]\nendpoint_url = https://all\ns3 =\n  endpoint_url = https://of-s3\n");
  EXPECT_EQ(ReadEndpoint().host, "of-s3");
  Write(".aws/config",
        "[default]\nendpoint_url = https://all\nservices = mine\n[services mine]\ns3 =\n"
        "  endpoint_url = https://service\nsts =\n  endpoint_url = https://token\n");
  EXPECT_EQ(ReadEndpoint().host, "service");
  EXPECT_EQ(Read().EndpointOf("sts"), "https://token");
  Set("AWS_ENDPOINT_URL", "https://environment");
  EXPECT_EQ(ReadEndpoint().host, "environment");
  Set("AWS_ENDPOINT_URL_S3", "https://environment-s3");
  EXPECT_EQ(ReadEndpoint().host, "environment-s3");
  options_.s3_endpoint = "https://option";
  EXPECT_EQ(ReadEndpoint().host, "option");
}

TEST_F(S3Endpoint, MayBeIgnoredAsTheAwsToolsDo) {
  Set("AWS_ENDPOINT_URL", "https://environment");
  Set("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true");
  EXPECT_TRUE(ReadEndpoint().is_aws());
}

TEST(S3Region, IsAHostLabel) {
  EXPECT_TRUE(IsRegion("eu-central-1"));
  EXPECT_FALSE(IsRegion(""));
  EXPECT_FALSE(IsRegion("evil.example/"));
  EXPECT_FALSE(IsRegion("EU"));
}

// A place that hands out credentials A1, A2, ...; each ends an hour after it was handed out.
class S3CredentialsCache : public testing::Test {
 protected:
  static constexpr int64_t kHour = 3600;

  std::string KeyNow() {
    const CredentialsPtr credentials = credentials_.Get();
    return credentials ? credentials->access_key : "none";
  }

  CredentialsPtr Find() {
    ++asked_;
    if (is_broken_) Fail(EIO, "the place is gone");
    if (is_empty_) return nullptr;
    if (!is_steady_) ++handed_out_;
    return MakeCredentials("A" + std::to_string(handed_out_), "S", "", "a test",
                           has_end_ ? std::optional(now_ + kHour) : std::nullopt);
  }

  int64_t now_ = 1'000'000;
  int asked_ = 0;
  int handed_out_ = 0;
  bool is_broken_ = false;
  bool is_empty_ = false;
  bool is_steady_ = false;
  bool has_end_ = true;
  CredentialsCache credentials_{[this] { return Find(); }, [this] { return now_; }};
};

TEST_F(S3CredentialsCache, FindsThemOnceWhileTheyAreValid) {
  EXPECT_EQ(KeyNow(), "A1");
  now_ += kHour - 301;
  EXPECT_EQ(KeyNow(), "A1");
  EXPECT_EQ(asked_, 1);
}

TEST_F(S3CredentialsCache, RenewsThemFiveMinutesBeforeTheyExpire) {
  EXPECT_EQ(KeyNow(), "A1");
  now_ += kHour - 300;
  EXPECT_EQ(KeyNow(), "A2");
}

TEST_F(S3CredentialsCache, NeverRenewsPermanentOnes) {
  has_end_ = false;
  EXPECT_EQ(KeyNow(), "A1");
  now_ += 1000 * kHour;
  EXPECT_EQ(KeyNow(), "A1");
}

TEST_F(S3CredentialsCache, UsesTheOldOnesWhileTheyAreValid) {
  KeyNow();
  is_broken_ = true;
  now_ += kHour - 100;
  EXPECT_EQ(KeyNow(), "A1");
  EXPECT_EQ(KeyNow(), "A1");
  EXPECT_EQ(asked_, 2);  // Not at each request.
  now_ += 99;
  EXPECT_EQ(KeyNow(), "A1");
}

TEST_F(S3CredentialsCache, FailsOnceTheOldOnesHaveExpired) {
  KeyNow();
  is_broken_ = true;
  now_ += kHour;
  EXPECT_THAT([&] { KeyNow(); }, ThrowsMessage<Error>("the place is gone"));
}

TEST_F(S3CredentialsCache, FindsThemAgainAfterAFailure) {
  KeyNow();
  is_broken_ = true;
  now_ += kHour;
  EXPECT_THROW(KeyNow(), Error);
  is_broken_ = false;
  EXPECT_EQ(KeyNow(), "A2");
}

TEST_F(S3CredentialsCache, DoesNotBecomeAnonymousIfNoneAreFoundAnyMore) {
  KeyNow();
  is_empty_ = true;
  now_ += kHour - 100;
  EXPECT_EQ(KeyNow(), "A1");
  now_ += 100;
  EXPECT_THAT([&] { KeyNow(); }, ThrowsMessage<Error>("credentials no longer found"));
  is_empty_ = false;
  EXPECT_EQ(KeyNow(), "A2");
}

TEST_F(S3CredentialsCache, RemembersThatThereAreNone) {
  is_empty_ = true;
  EXPECT_EQ(KeyNow(), "none");
  EXPECT_EQ(KeyNow(), "none");
  EXPECT_EQ(asked_, 1);
  EXPECT_FALSE(credentials_.Renew(""));
}

TEST_F(S3CredentialsCache, RenewsRefusedOnes) {
  KeyNow();
  now_ += 60;
  EXPECT_TRUE(credentials_.Renew("A1"));
  EXPECT_EQ(KeyNow(), "A2");
}

TEST_F(S3CredentialsCache, RenewsRefusedOnesAtOnce) {
  KeyNow();
  EXPECT_TRUE(credentials_.Renew("A1"));
  EXPECT_EQ(KeyNow(), "A2");
}

TEST_F(S3CredentialsCache, RenewsRefusedOnesOnceForManyThreads) {
  KeyNow();
  now_ += 60;
  EXPECT_TRUE(credentials_.Renew("A1"));
  EXPECT_TRUE(credentials_.Renew("A1"));
  EXPECT_EQ(asked_, 2);
}

TEST_F(S3CredentialsCache, ReportsIfTheRenewedOnesAreTheSame) {
  KeyNow();
  is_steady_ = true;
  now_ += 60;
  EXPECT_FALSE(credentials_.Renew("A1"));
}

TEST(CredentialProcess, WithUnknownExitStatusFails) {
  const auto before = std::signal(SIGCHLD, SIG_IGN);  // Then waitpid finds no child.
  EXPECT_THAT(
      [] {
        FromProcess(
            R"(sh -c 'echo {\"Version\":1,\"AccessKeyId\":\"a\",\"SecretAccessKey\":\"b\"}')",
            std::chrono::seconds(20));
      },
      ThrowsMessage<Error>("cannot wait for credential_process 'sh': No child processes"));
  std::signal(SIGCHLD, before);
}

}  // namespace
}  // namespace ckptfs::s3
