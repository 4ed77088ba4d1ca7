// Objects in S3 and compatible stores: s3/location.h describes the URIs.
//
// AWS returns the region of a bucket and its own time with errors. The first request may therefore
// fail; all later ones use the region and the clock offset of its response.

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/encoding.h"
#include "parser/base/error.h"
#include "parser/base/mutex.h"
#include "parser/io/source_options.h"
#include "parser/scheme.h"
#include "parser/source/http/headers.h"
#include "parser/source/http/object.h"
#include "parser/source/s3/bucket.h"
#include "parser/source/s3/config.h"
#include "parser/source/s3/credentials.h"
#include "parser/source/s3/folder.h"
#include "parser/source/s3/location.h"
#include "parser/source/s3/response.h"
#include "parser/source/s3/sigv4.h"

namespace ckptfs {
namespace s3 {
namespace {

// The oldest region of AWS redirects requests for all buckets; most other services accept this name
// only.
constexpr std::string_view kDefaultRegion = "us-east-1";

// Whether two times, in seconds, are close enough: AWS tolerates a difference of 15 minutes.
bool AreClose(int64_t a, int64_t b) {
  constexpr int64_t kTolerance = 60;
  return std::abs(a - b) < kTolerance;
}

std::string FindCertificates(const Config& config, const SourceOptions& options) {
  if (!options.ca_file.empty()) return options.ca_file;
  const std::string bundle = config.Variable("AWS_CA_BUNDLE");
  return bundle.empty() ? std::string(config.Setting(config.profile(), "ca_bundle")) : bundle;
}

// A bucket of AWS or a compatible server. Thread-safe.
class AwsBucket final : public Bucket {
 public:
  // Reads the files of the AWS tools and finds credentials, which may send requests and run
  // programs. Throws Error as Config, ResolveEndpoint and FindCredentials do.
  AwsBucket(std::string name, const Environment& environment, const SourceOptions& options);

  // Signs the request, unless there are no credentials. `headers` are not signed. Throws Error as
  // CredentialsCache::Get does.
  http::PreparedRequest Prepare(std::string_view key, const Query& query,
                                const std::vector<std::string>& headers) override;

  // Uses another region, corrects the clock or renews the credentials.
  bool Recover(const http::PreparedRequest& prepared, const http::Response& response) override;

  void Succeeded() override;

 private:
  AwsBucket(std::string name, const Environment& environment, const SourceOptions& options,
            const Config& config);

  CredentialsPtr Find() const;
  CredentialsPtr GetCredentials();  // Null: requests are not signed.
  Endpoint FindEndpoint(const Config& config);

  // Each returns whether the next request may succeed.
  bool FollowRegion(uint64_t generation, std::string_view region);
  bool CorrectClock(uint64_t generation, const http::Response& response);

  const std::string name_;
  const Environment environment_;
  bool is_open_ = false;  // The constructor has ended.
  CredentialsCache credentials_;
  const Endpoint endpoint_;

  Mutex mutex_;
  std::string region_ GUARDED_BY(mutex_);
  int64_t clock_offset_ GUARDED_BY(mutex_) =
      0;                                        // Seconds that the server's clock is ahead of ours.
  uint64_t generation_ GUARDED_BY(mutex_) = 0;  // Number of changes of the two above.
  int moves_ GUARDED_BY(mutex_) = 0;            // To other regions, in a row.
  int corrections_ GUARDED_BY(mutex_) = 0;      // Of the clock, in a row.
};

AwsBucket::AwsBucket(std::string name, const Environment& environment, const SourceOptions& options)
    : AwsBucket(std::move(name), environment, options, Config(environment, options)) {}

AwsBucket::AwsBucket(std::string name, const Environment& environment, const SourceOptions& options,
                     const Config& config)
    : Bucket(options, FindCertificates(config, options)),
      name_(std::move(name)),
      environment_(environment),
      credentials_([this] { return Find(); }, [] { return std::time(nullptr); }),
      endpoint_(FindEndpoint(config)),
      region_(config.region().empty() ? kDefaultRegion : config.region()) {
  if (!IsRegion(region_)) Fail(EINVAL, "invalid region name {}", Quoted(region_));
  is_open_ = true;
}

// Reads all files again, which may have changed. During a mount, limits how long readers block.
CredentialsPtr AwsBucket::Find() const {
  const std::chrono::seconds longest(is_open_ ? 10 : 60);
  SourceOptions limited = options();
  limited.timeout = std::min(limited.timeout, longest);
  const Config config(environment_, limited);
  return FindCredentials({.config = config, .client = client(), .options = limited});
}

CredentialsPtr AwsBucket::GetCredentials() {
  return options().s3_anonymous ? nullptr : credentials_.Get();
}

// Credentials with an endpoint are sent to that one only.
Endpoint AwsBucket::FindEndpoint(const Config& config) {
  const CredentialsPtr credentials = GetCredentials();
  SourceOptions found = options();
  if (found.s3_endpoint.empty() && credentials) found.s3_endpoint = credentials->endpoint;
  return ResolveEndpoint(config, found);
}

http::PreparedRequest AwsBucket::Prepare(std::string_view key, const Query& query,
                                         const std::vector<std::string>& headers) {
  const CredentialsPtr credentials = GetCredentials();
  http::PreparedRequest prepared;
  std::string region;
  std::time_t now = std::time(nullptr);
  {
    const MutexLock lock(mutex_);
    prepared.generation = generation_;
    region = region_;
    now += clock_offset_;
  }
  const BucketAddress address = ResolveBucket(endpoint_, name_, region);
  UnsignedRequest get{.method = "GET",
                      .host = address.host,
                      .path = address.path + PercentEncode(key, "/"),
                      .query = CanonicalQuery(query),
                      .headers = {},
                      .body = ""};
  if (options().s3_requester_pays) get.headers.emplace_back("x-amz-request-payer", "requester");
  http::Request& request = prepared.request;
  request.url =
      fmt::format("{}{}{}{}", address.origin, get.path, get.query.empty() ? "" : "?", get.query);
  if (credentials) {
    request.headers = Sign(get, {.region = region, .service = "s3"}, *credentials, now);
    request.has_secret = !credentials->session_token.empty();
    prepared.access_key = credentials->access_key;
  }
  request.headers.insert(request.headers.end(), headers.begin(), headers.end());
  return prepared;
}

bool AwsBucket::Recover(const http::PreparedRequest& prepared, const http::Response& response) {
  const ErrorResponse error = ParseErrorResponse(response.body);
  const std::string_view region = response.Find("x-amz-bucket-region");
  const bool is_signed = !prepared.access_key.empty();
  bool may_succeed = false;
  switch (RetryActionFor(response, error)) {
    case RetryAction::kRegion:
      may_succeed = FollowRegion(prepared.generation, region.empty() ? error.region : region);
      break;
    case RetryAction::kClock:
      may_succeed = is_signed && CorrectClock(prepared.generation, response);
      break;
    case RetryAction::kRenew:
      may_succeed = is_signed && credentials_.Renew(prepared.access_key);
      break;
    case RetryAction::kNone:
      break;
  }
  if (may_succeed) return true;
  const CredentialsPtr credentials = is_signed ? GetCredentials() : nullptr;
  FailFor(response, error, credentials ? credentials->origin : "");
}

bool AwsBucket::FollowRegion(uint64_t generation, std::string_view region) {
  constexpr int kMostMoves = 4;
  const MutexLock lock(mutex_);
  if (generation != generation_) return true;  // Another thread has recovered.
  if (!IsRegion(region) || region == region_ || ++moves_ > kMostMoves) return false;
  region_ = region;
  ++generation_;
  return true;
}

bool AwsBucket::CorrectClock(uint64_t generation, const http::Response& response) {
  constexpr int kMostCorrections = 4;
  const auto server_time = http::ParseDate(response.Find("date"));
  if (!server_time) return false;
  const int64_t now = std::time(nullptr);
  const MutexLock lock(mutex_);
  if (generation != generation_) return true;  // Another thread has recovered.
  if (AreClose(now + clock_offset_, *server_time) || ++corrections_ > kMostCorrections) {
    return false;
  }
  clock_offset_ = *server_time - now;
  ++generation_;
  return true;
}

void AwsBucket::Succeeded() {
  const MutexLock lock(mutex_);
  moves_ = 0;
  corrections_ = 0;
}

// Returns the URI of an object for messages: without the query of a signed URL, which by mistake
// may be part of the key.
std::string FormatName(const ObjectId& id) {
  const size_t query = id.key.find('?');
  const bool is_signed =
      query != std::string::npos && id.key.find("ignature=", query) != std::string::npos;
  return fmt::format("s3://{}/{}{}{}", id.bucket,
                     id.key.substr(0, is_signed ? query : std::string::npos),
                     id.version.empty() ? "" : "?versionId=", id.version);
}

SchemeSource Open(const Location& location, const SourceOptions& options) {
  const ObjectId id = ParseUri(location);
  const auto bucket = std::make_shared<AwsBucket>(id.bucket, ProcessEnvironment, options);
  return OpenInBucket(bucket, id, fmt::format("s3://{}/", id.bucket), FormatName(id));
}

constexpr std::string_view kNames[] = {"s3"};

}  // namespace
}  // namespace s3

extern const Scheme s3_scheme{.names = s3::kNames, .open = s3::Open};

}  // namespace ckptfs
