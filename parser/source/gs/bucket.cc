#include "parser/source/gs/bucket.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <utility>

#include "parser/base/encoding.h"
#include "parser/base/error.h"
#include "parser/source/gs/tokens.h"
#include "parser/source/http/headers.h"
#include "parser/source/http/url.h"
#include "parser/source/s3/response.h"
#include "parser/source/s3/sigv4.h"

namespace ckptfs::gs {
namespace {

// Returns the URL of the server, without '/' at its end.
std::string FindServer(const s3::Environment& environment) {
  std::string text = environment("STORAGE_EMULATOR_HOST");
  if (text.empty()) return "https://storage.googleapis.com";
  if (text.find("://") == std::string::npos) text.insert(0, "http://");
  try {
    const http::Url url = http::ParseUrl(text);
    std::string server = WithoutQuery(url);
    while (server.ends_with('/')) server.pop_back();
    return server;
  } catch (const Error& e) {
    throw WithContext("STORAGE_EMULATOR_HOST", e);
  }
}

// During a mount, limits how long readers block.
SourceOptions Limited(SourceOptions options) {
  constexpr std::chrono::seconds kLongest(10);
  options.timeout = std::min(options.timeout, kLongest);
  return options;
}

}  // namespace

Bucket::Bucket(std::string name, const s3::Environment& environment, const SourceOptions& options)
    : s3::Bucket(options, options.ca_file),
      name_(std::move(name)),
      server_(FindServer(environment)),
      tokens_([this,
               environment] { return FindToken(environment, client(), Limited(this->options())); },
              [] { return std::time(nullptr); }) {
  if (GetToken() && !http::ParseUrl(server_).IsPrivate()) {
    Fail(EINVAL,
         "insecure STORAGE_EMULATOR_HOST: a token is sent over https or to this machine, "
         "not over http");
  }
}

s3::CredentialsPtr Bucket::GetToken() { return options().s3_anonymous ? nullptr : tokens_.Get(); }

http::PreparedRequest Bucket::Prepare(std::string_view key, const s3::Query& query,
                                      const std::vector<std::string>& headers) {
  http::PreparedRequest prepared;
  const std::string encoded = s3::CanonicalQuery(query);
  prepared.request.url =
      fmt::format("{}/{}{}{}{}{}", server_, PercentEncode(name_), key.empty() ? "" : "/",
                  PercentEncode(key, "/"), encoded.empty() ? "" : "?", encoded);
  prepared.request.headers = headers;
  if (const s3::CredentialsPtr token = GetToken()) {
    prepared.request.headers.push_back("Authorization: Bearer " + token->session_token);
    prepared.request.has_secret = true;
    prepared.access_key = token->access_key;
  }
  return prepared;
}

bool Bucket::Recover(const http::PreparedRequest& prepared, const http::Response& response) {
  constexpr int kUnauthorized = 401;
  if (response.status == kUnauthorized && !prepared.access_key.empty() &&
      tokens_.Renew(prepared.access_key)) {
    return true;
  }
  if (http::IsRedirect(response.status)) {
    Fail(EREMOTEIO, "unexpected redirect: status {}", response.status);
  }
  const s3::CredentialsPtr token = prepared.access_key.empty() ? nullptr : GetToken();
  s3::FailFor(response, s3::ParseErrorResponse(response.body), token ? token->origin : "");
}

}  // namespace ckptfs::gs
