#include "parser/source/s3/bucket.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <utility>

#include "parser/base/error.h"
#include "parser/io/folder.h"
#include "parser/source/http/fields.h"
#include "parser/source/s3/answer.h"
#include "parser/source/s3/providers.h"
#include "parser/source/s3/refusal.h"
#include "parser/source/s3/uri.h"

namespace ckptfs::s3 {
namespace {

// AWS' oldest region knows all buckets, and other services mostly have no regions but by this name.
constexpr std::string_view kUsualRegion = "us-east-1";

// Whether two times, in seconds, are the same to AWS, which wants them within 15 minutes.
bool IsAbout(int64_t a, int64_t b) {
  constexpr int64_t kSame = 60;
  return std::abs(a - b) < kSame;
}

// Who signed a request, and where it counts. Empty if nobody did.
struct Signer {
  std::string_view access_key;
  std::string_view region;
};

std::string_view HeaderOf(const http::Request& request, std::string_view name_and_colon) {
  for (const std::string_view header : request.headers) {
    if (header.starts_with(name_and_colon)) return header.substr(name_and_colon.size());
  }
  return {};
}

Signer SignerOf(const http::Request& request) {
  constexpr std::string_view kBegin = "AWS4-HMAC-SHA256 Credential=";
  std::string_view rest = HeaderOf(request, "Authorization: ");
  if (!rest.starts_with(kBegin)) return {};
  rest.remove_prefix(kBegin.size());
  // "key/20130524/us-east-1/s3/aws4_request,..."; a key may have slashes, a region has none.
  rest = rest.substr(0, rest.find("/s3/aws4_request"));
  const size_t region = rest.rfind('/');
  if (region == std::string_view::npos || region < 9) return {};
  return {.access_key = rest.substr(0, region - 9), .region = rest.substr(region + 1)};
}

// When a request was signed; nothing if it was not. The header has "20130524T000000Z".
std::optional<int64_t> TimeOf(const http::Request& request) {
  const std::string_view basic = HeaderOf(request, "x-amz-date: ");
  if (basic.size() != 16) return std::nullopt;
  return ParseTime(fmt::format("{}-{}-{}:{}:{}", basic.substr(0, 4), basic.substr(4, 2),
                               basic.substr(6, 5), basic.substr(11, 2), basic.substr(13)));
}

std::string CertificatesFor(const Config& config, const SourceOptions& options) {
  if (!options.ca_file.empty()) return options.ca_file;
  const std::string bundle = config.Variable("AWS_CA_BUNDLE");
  return bundle.empty() ? std::string(config.Setting(config.profile(), "ca_bundle")) : bundle;
}

}  // namespace

Bucket::Bucket(std::string name, const Environment& environment, const SourceOptions& options)
    : Bucket(std::move(name), environment, options, Config(environment, options)) {}

Bucket::Bucket(std::string name, const Environment& environment, const SourceOptions& options,
               const Config& config)
    : name_(std::move(name)),
      environment_(environment),
      options_(options),
      client_(std::make_shared<http::Client>(http::Client::Options{
          .ca_file = CertificatesFor(config, options), .user_agent = options.user_agent})),
      keeper_([this] { return Find(); }, [] { return std::time(nullptr); }),
      endpoint_(FindEndpoint(config)),
      region_(config.region().empty() ? kUsualRegion : config.region()) {
  if (!IsRegion(region_)) Fail(EINVAL, "{} cannot be the name of a region", Quoted(region_));
  is_open_ = true;
}

// Files may have changed since they were read last: all of it begins anew. A mount that is in use
// must not wait for long.
CredentialsPtr Bucket::Find() const {
  const std::chrono::seconds patience(is_open_ ? 10 : 60);
  SourceOptions options = options_;
  options.timeout = std::min(options.timeout, patience);
  const Config config(environment_, options);
  return FindCredentials({.config = config, .client = *client_, .options = options});
}

CredentialsPtr Bucket::Ours() { return options_.s3_anonymous ? nullptr : keeper_.Get(); }

// Keys that come with a server are for that one.
Endpoint Bucket::FindEndpoint(const Config& config) {
  const CredentialsPtr credentials = Ours();
  SourceOptions options = options_;
  if (options.s3_endpoint.empty() && credentials) options.s3_endpoint = credentials->endpoint;
  return EndpointFor(config, options);
}

int64_t Bucket::Now() {
  const std::scoped_lock lock(mutex_);
  return std::time(nullptr) + clock_offset_;
}

http::Request Bucket::Prepare(std::string_view key, const Query& query,
                              const std::vector<std::string>& headers) {
  const CredentialsPtr credentials = Ours();
  std::string region;
  {
    const std::scoped_lock lock(mutex_);
    region = region_;
  }
  const BucketAddress address = AddressOf(endpoint_, name_, region);
  Unsigned get{.method = "GET",
               .host = address.host,
               .path = address.path + Encoded(key, false),
               .query = CanonicalQuery(query),
               .headers = {},
               .body = ""};
  if (options_.s3_requester_pays) get.headers.emplace_back("x-amz-request-payer", "requester");
  http::Request request;
  request.url =
      fmt::format("{}{}{}{}", address.origin, get.path, get.query.empty() ? "" : "?", get.query);
  if (credentials) {
    request.headers = Sign(get, {.region = region, .service = "s3"}, *credentials, Now());
    request.has_secret = !credentials->session_token.empty();
  }
  request.headers.insert(request.headers.end(), headers.begin(), headers.end());
  return request;
}

bool Bucket::Recover(const http::Request& request, const http::Response& response) {
  const Failure failure = FailureIn(response.body);
  const std::string_view told = response.Find("x-amz-bucket-region");
  const std::string_view access_key = SignerOf(request).access_key;
  bool is_mended = false;
  switch (RemedyFor(response, failure)) {
    case Remedy::kRegion:
      is_mended = FollowRegion(request, told.empty() ? failure.region : told);
      break;
    case Remedy::kClock:
      is_mended = CorrectClock(request, response);
      break;
    case Remedy::kRenew:
      is_mended = !access_key.empty() && keeper_.Renew(std::string(access_key));
      break;
    case Remedy::kNone:
      break;
  }
  if (is_mended) return true;
  const CredentialsPtr credentials = access_key.empty() ? nullptr : Ours();
  FailFor(response, failure, credentials ? credentials->origin : "");
}

bool Bucket::IsForRegion(const http::Request& request) const {
  const Signer signer = SignerOf(request);
  if (!signer.access_key.empty()) return signer.region == region_;
  return request.url.starts_with(AddressOf(endpoint_, name_, region_).origin + "/");
}

bool Bucket::FollowRegion(const http::Request& request, std::string_view wanted) {
  constexpr int kMostMoves = 4;
  const std::scoped_lock lock(mutex_);
  if (!IsForRegion(request)) return true;  // Another thread has been told the same.
  if (!IsRegion(wanted) || wanted == region_ || ++moves_ > kMostMoves) return false;
  region_ = wanted;
  return true;
}

bool Bucket::CorrectClock(const http::Request& request, const http::Response& response) {
  constexpr int kMostCorrections = 4;
  const auto theirs = http::ParseDate(response.Find("date"));
  const auto signed_at = TimeOf(request);
  if (!theirs || !signed_at) return false;
  const int64_t now = std::time(nullptr);
  const std::scoped_lock lock(mutex_);
  // Another thread has been told the same.
  if (!IsAbout(*signed_at, now + clock_offset_)) return true;
  if (IsAbout(*signed_at, *theirs) || ++corrections_ > kMostCorrections) return false;
  clock_offset_ = *theirs - now;
  return true;
}

void Bucket::CountObject() { files_.Add(); }

void Bucket::Succeeded() {
  const std::scoped_lock lock(mutex_);
  moves_ = 0;
  corrections_ = 0;
}

}  // namespace ckptfs::s3
