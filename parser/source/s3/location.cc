#include "parser/source/s3/location.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "parser/base/encoding.h"
#include "parser/base/error.h"
#include "parser/base/text.h"

namespace ckptfs::s3 {
namespace {

bool IsLetterOrDigit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || IsDigit(c);
}

bool IsOfBucket(char c) { return IsLetterOrDigit(c) || c == '-' || c == '.' || c == '_'; }

}  // namespace

ObjectId ParseUri(const Location& uri) {
  std::string_view bucket = uri.authority;
  std::string_view key = uri.path;
  ObjectId id;
  if (const auto version = TakeParameter(key.empty() ? bucket : key, "?versionId=")) {
    id.version = *version;
    if (id.version.empty()) Fail(EINVAL, "missing version after ?versionId=");
  }
  id.bucket = bucket;
  id.key = key.substr(std::min<size_t>(1, key.size()));
  if (id.bucket.empty()) Fail(EINVAL, "missing bucket (expected s3://bucket/key)");
  // The bucket may be a user with a password, which no message may contain.
  if (id.bucket.find_first_of("@:%") != std::string::npos) {
    Fail(
        EINVAL,
        "user or port in place of the bucket: set the server with -o endpoint=, and credentials as "
        "for the AWS tools");
  }
  if (!std::ranges::all_of(id.bucket, IsOfBucket)) {
    Fail(EINVAL, "invalid bucket name {}", Quoted(id.bucket));
  }
  if (id.is_folder() && !id.version.empty()) {
    Fail(EINVAL, "version of a folder (expected a key before ?versionId=)");
  }
  return id;
}

namespace {

// The host of AWS before regions were introduced, which many files of s3cmd contain.
constexpr std::string_view kAws = "s3.amazonaws.com";

bool IsLowerOrDigit(char c) { return (c >= 'a' && c <= 'z') || IsDigit(c); }

// Whether `bucket` is valid as one label of a host name, which a wildcard certificate covers.
bool IsHostLabel(std::string_view bucket) {
  return bucket.size() >= 3 && bucket.size() <= 63 && bucket.front() != '-' &&
         bucket.back() != '-' &&
         std::ranges::all_of(bucket, [](char c) { return IsLowerOrDigit(c) || c == '-'; });
}

// Whether `host` does not support buckets in the path.
bool RequiresVirtual(std::string_view host) {
  return host == "cwobject.com" || host == "cwlota.com" || host.starts_with("cwobject.com:") ||
         host.starts_with("cwlota.com:");
}

// The host that a server signs may lack the default port.
std::string RemoveDefaultPort(std::string_view scheme, std::string host) {
  const std::string_view port = scheme == "http" ? ":80" : ":443";
  if (host.ends_with(port)) host.resize(host.size() - port.size());
  return host;
}

}  // namespace

Endpoint ParseEndpoint(std::string_view url) {
  const bool has_scheme = url.find("://") != std::string_view::npos;
  const Location location = ParseLocation(fmt::format("{}{}", has_scheme ? "" : "https://", url));
  Endpoint endpoint;
  endpoint.scheme = location.scheme;
  endpoint.host = RemoveDefaultPort(location.scheme, location.authority);
  endpoint.path = location.path;
  while (endpoint.path.ends_with('/')) endpoint.path.pop_back();
  const auto is_bad = [](char c) {
    return c <= ' ' || c == 0x7f || c == '@' || c == '?' || c == '#' || c == '\\';
  };
  if ((endpoint.scheme != "http" && endpoint.scheme != "https") || endpoint.host.empty() ||
      endpoint.host.find('%') != std::string::npos || std::ranges::any_of(url, is_bad)) {
    // A URL with a user or a query may contain a secret.
    if (url.find_first_of("@%?") != std::string_view::npos) {
      Fail(EINVAL, "invalid S3 endpoint with a user or a query (expected https://host:port)");
    }
    Fail(EINVAL, "invalid S3 endpoint {} (expected https://host:port)", Quoted(url));
  }
  if (endpoint.host == kAws) endpoint.host.clear();
  return endpoint;
}

Endpoint ResolveEndpoint(const Config& config, const SourceOptions& options) {
  const std::string given =
      options.s3_endpoint.empty() ? config.EndpointOf("s3") : options.s3_endpoint;
  Endpoint endpoint;
  if (!given.empty()) {
    endpoint = ParseEndpoint(given);
  }
  const std::string style = config.S3Setting("addressing_style");
  endpoint.is_path = options.s3_path_style || style == "path";
  endpoint.is_virtual = !endpoint.is_path && (style == "virtual" || RequiresVirtual(endpoint.host));
  return endpoint;
}

std::string_view AwsDomain(std::string_view region) {
  return region.starts_with("cn-") ? "amazonaws.com.cn" : "amazonaws.com";
}

bool IsRegion(std::string_view region) {
  return !region.empty() && region.size() <= 63 &&
         std::ranges::all_of(region, [](char c) { return IsLowerOrDigit(c) || c == '-'; });
}

BucketAddress ResolveBucket(const Endpoint& endpoint, std::string_view bucket,
                            std::string_view region) {
  std::string host =
      endpoint.is_aws() ? fmt::format("s3.{}.{}", region, AwsDomain(region)) : endpoint.host;
  const bool is_below =
      endpoint.is_aws() ? !endpoint.is_path && IsHostLabel(bucket) : endpoint.is_virtual;
  std::string path = endpoint.path + "/";
  if (is_below) {
    host = fmt::format("{}.{}", bucket, host);
  } else {
    path += PercentEncode(bucket) + "/";
  }
  return {.origin = fmt::format("{}://{}", endpoint.scheme, host), .host = host, .path = path};
}

}  // namespace ckptfs::s3
