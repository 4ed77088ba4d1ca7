// Credentials of the machine that we run on: AWS' virtual machines and containers have a small web
// server beside them that hands them out for a few hours.

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/error.h"
#include "parser/source/http/object.h"
#include "parser/source/http/url.h"
#include "parser/source/s3/answer.h"
#include "parser/source/s3/endpoint.h"
#include "parser/source/s3/providers.h"
#include "parser/source/s3/small_file.h"
#include "parser/source/s3/uri.h"

namespace ckptfs::s3 {
namespace {

constexpr int kOk = 200;

// Bytes, of what the instance's server answers and is told again: far more than AWS has.
constexpr size_t kLongestToken = size_t{16} << 10U;
constexpr size_t kLongestRole = 1024;

// Whether what is sent there in the clear stays on this machine, or is the server of an
// orchestrator.
bool IsNear(const Endpoint& endpoint) {
  std::string_view host = endpoint.host;
  if (host.starts_with('[')) {
    host = host.substr(0, host.find(']') + 1);
  } else {
    host = host.substr(0, host.find(':'));
  }
  return endpoint.scheme == "https" || http::IsLoopback(host) || host == "169.254.170.2" ||
         host == "169.254.170.23" || host == "[fd00:ec2::23]";
}

std::string AuthorizationOfContainer(const Config& config) {
  const std::string file = config.Variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
  std::string token =
      file.empty() ? config.Variable("AWS_CONTAINER_AUTHORIZATION_TOKEN") : ReadToken(file);
  if (token.find_first_of("\r\n") != std::string::npos) {
    Fail(EACCES, "the authorization token for the container's credentials is not one line");
  }
  return token;
}

std::string LocationInContainer(const Config& config) {
  if (const std::string relative = config.Variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
      !relative.empty()) {
    return "http://169.254.170.2" + relative;
  }
  return config.Variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
}

std::string InstanceService(const Config& config) {
  std::string url = config.Variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
  if (url.empty()) {
    const bool is_ipv6 = config.Variable("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE") == "IPv6";
    url = is_ipv6 ? "http://[fd00:ec2::254]" : "http://169.254.169.254";
  }
  while (url.ends_with('/')) url.pop_back();
  return url;
}

// The body of an answer of the instance's server. It is one hop away or not there at all.
std::string AskInstance(http::Client& client, http::Request request) {
  constexpr std::chrono::seconds kPatience{1};
  request.has_secret = true;
  request.stall = kPatience;
  request.deadline = kPatience;
  http::Response response = client.Perform(request, nullptr, std::stop_token());
  if (response.status != kOk) {
    Fail(EACCES, "the instance's metadata service answers with status {}", response.status);
  }
  return std::move(response.body);
}

}  // namespace

CredentialsPtr FromContainer(const Surroundings& around) {
  const std::string url = LocationInContainer(around.config);
  if (url.empty()) return nullptr;
  const std::string_view path = std::string_view(url).substr(0, url.find_first_of("?#"));
  if (!IsNear(ParseEndpoint(path))) {
    Fail(EACCES,
         "AWS_CONTAINER_CREDENTIALS_FULL_URI leads over http:// to another machine, where "
         "credentials must not be asked for");
  }
  const auto prepare = [&] {
    http::Request request;
    request.url = url;
    request.headers = {"Accept: application/json"};
    request.has_secret = true;
    if (const std::string token = AuthorizationOfContainer(around.config); !token.empty()) {
      request.headers.push_back("Authorization: " + token);
    }
    return request;
  };
  const http::Response response = http::Call(around.client, prepare, around.options);
  if (response.status != kOk) {
    Fail(EACCES, "the container's credentials are refused: status {}", response.status);
  }
  return CredentialsInJson(response.body, "the container");
}

CredentialsPtr FromInstance(const Surroundings& around) {
  if (around.config.Variable("AWS_EC2_METADATA_DISABLED") == "true") return nullptr;
  const std::string service = InstanceService(around.config);
  std::string token;
  std::string role;
  const auto get = [&](const std::string& path) {
    http::Request request;
    request.url = service + "/latest/meta-data/iam/security-credentials/" + path;
    request.headers = {"X-aws-ec2-metadata-token: " + token};
    return AskInstance(around.client, std::move(request));
  };
  try {
    http::Request request;
    request.method = "PUT";
    request.url = service + "/latest/api/token";
    request.headers = {"X-aws-ec2-metadata-token-ttl-seconds: 21600"};
    token = AskInstance(around.client, std::move(request));
    if (token.size() > kLongestToken || token.find_first_of("\r\n") != std::string::npos) {
      return nullptr;
    }
    role = get("");
  } catch (const Error&) {
    return nullptr;  // There is no such service, or the instance has no role.
  }
  role = role.substr(0, role.find_first_of("\r\n"));
  if (role.empty() || role.size() > kLongestRole) return nullptr;
  return CredentialsInJson(get(Encoded(role, false)), "the instance");
}

}  // namespace ckptfs::s3
