#include "parser/source/s3/endpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "parser/base/error.h"
#include "parser/source/s3/uri.h"

namespace ckptfs::s3 {
namespace {

// What AWS' S3 was called before there were regions, and is in many files of s3cmd.
constexpr std::string_view kAws = "s3.amazonaws.com";

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLowerOrDigit(char c) { return (c >= 'a' && c <= 'z') || IsDigit(c); }

// Whether it can be part of the name of a host, and a certificate for all names there is good for
// it.
bool IsHostLabel(std::string_view bucket) {
  return bucket.size() >= 3 && bucket.size() <= 63 && bucket.front() != '-' &&
         bucket.back() != '-' &&
         std::ranges::all_of(bucket, [](char c) { return IsLowerOrDigit(c) || c == '-'; });
}

// These serve nothing in the path.
bool WantsVirtual(std::string_view host) {
  return host == "cwobject.com" || host == "cwlota.com" || host.starts_with("cwobject.com:") ||
         host.starts_with("cwlota.com:");
}

// A server may sign for the port that is usual without naming it.
std::string WithoutUsualPort(std::string_view scheme, std::string host) {
  const std::string_view port = scheme == "http" ? ":80" : ":443";
  if (host.ends_with(port)) host.resize(host.size() - port.size());
  return host;
}

}  // namespace

Endpoint ParseEndpoint(std::string_view url) {
  const std::string_view given = url;
  Endpoint endpoint;
  if (const size_t end = url.find("://"); end != std::string_view::npos) {
    endpoint.scheme = url.substr(0, end);
    url.remove_prefix(end + 3);
  }
  const size_t slash = std::min(url.find('/'), url.size());
  endpoint.host = WithoutUsualPort(endpoint.scheme, std::string(url.substr(0, slash)));
  endpoint.path = url.substr(slash);
  while (endpoint.path.ends_with('/')) endpoint.path.pop_back();
  const auto is_bad = [](char c) {
    return c <= ' ' || c == 0x7f || c == '@' || c == '?' || c == '#' || c == '\\';
  };
  if ((endpoint.scheme != "http" && endpoint.scheme != "https") || endpoint.host.empty() ||
      endpoint.host.find('%') != std::string::npos || std::ranges::any_of(url, is_bad)) {
    // A URL with a user or a query in it may have a secret.
    if (given.find_first_of("@%?") != std::string_view::npos) {
      Fail(EINVAL, "an endpoint of S3 has no user and no query in it: https://host:port is one");
    }
    Fail(EINVAL, "{} is no endpoint of S3: https://host:port is one", Quoted(given));
  }
  if (endpoint.host == kAws) endpoint.host.clear();
  return endpoint;
}

Endpoint EndpointFor(const Config& config, const SourceOptions& options) {
  const std::string given =
      options.s3_endpoint.empty() ? config.EndpointOf("s3") : options.s3_endpoint;
  Endpoint endpoint;
  if (!given.empty()) {
    endpoint = ParseEndpoint(given);
  }
  const std::string style = config.S3Setting("addressing_style");
  endpoint.is_path = options.s3_path_style || style == "path";
  endpoint.is_virtual = !endpoint.is_path && (style == "virtual" || WantsVirtual(endpoint.host));
  return endpoint;
}

std::string_view DomainOfAws(std::string_view region) {
  return region.starts_with("cn-") ? "amazonaws.com.cn" : "amazonaws.com";
}

bool IsRegion(std::string_view region) {
  return !region.empty() && region.size() <= 63 &&
         std::ranges::all_of(region, [](char c) { return IsLowerOrDigit(c) || c == '-'; });
}

BucketAddress AddressOf(const Endpoint& endpoint, std::string_view bucket,
                        std::string_view region) {
  std::string host =
      endpoint.is_aws() ? fmt::format("s3.{}.{}", region, DomainOfAws(region)) : endpoint.host;
  const bool is_below =
      endpoint.is_aws() ? !endpoint.is_path && IsHostLabel(bucket) : endpoint.is_virtual;
  std::string path = endpoint.path + "/";
  if (is_below) {
    host = fmt::format("{}.{}", bucket, host);
  } else {
    path += Encoded(bucket, true) + "/";
  }
  return {.origin = fmt::format("{}://{}", endpoint.scheme, host), .host = host, .path = path};
}

}  // namespace ckptfs::s3
