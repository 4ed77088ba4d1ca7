// Objects in Google Cloud Storage: gs://bucket/key, where the key is not encoded, as in S3.
//
// Requests go to its XML interface, which lists as S3 does, and have an access token:
// https://docs.cloud.google.com/storage/docs/xml-api/overview

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/encoding.h"
#include "parser/base/error.h"
#include "parser/base/hash.h"
#include "parser/base/text.h"
#include "parser/base/user_settings.h"
#include "parser/codec/json_document.h"
#include "parser/io/simple_sources.h"
#include "parser/io/source_options.h"
#include "parser/scheme.h"
#include "parser/source/http/client.h"
#include "parser/source/http/headers.h"
#include "parser/source/http/url.h"
#include "parser/source/s3/bucket.h"
#include "parser/source/s3/config.h"
#include "parser/source/s3/credentials.h"
#include "parser/source/s3/folder.h"
#include "parser/source/s3/location.h"
#include "parser/source/s3/machine_credentials.h"
#include "parser/source/s3/response.h"
#include "parser/source/s3/sigv4.h"

namespace ckptfs {
namespace gs {
namespace {

// Access tokens, which expire after an hour.

// `text` may have blanks around the token.
s3::CredentialsPtr MakeToken(std::string_view text, std::string origin,
                             std::optional<int64_t> expiry = std::nullopt) {
  std::string token = ParseToken(text, origin);
  // The hash distinguishes tokens; there is no secret key.
  std::string id = fmt::format("{:x}", HashOf(token));
  return s3::MakeCredentials(std::move(id), "-", std::move(token), std::move(origin), expiry);
}

// Parses {"access_token": "ya29...", "expires_in": 3599}.
s3::CredentialsPtr ParseResponse(std::string body) {
  constexpr uint64_t kLongestLife = 86'400;  // Seconds.
  const auto source = std::make_shared<MemorySource>(std::move(body));
  Budget budget = Budget::ForFile(source->size());
  const auto document =
      json::Document::Of({.source = source, .offset = 0, .length = source->size()}, budget);
  const auto token = document.root().Find("access_token");
  const auto life = document.root().Find("expires_in");
  if (!token || !token->is_text() || !life || life->kind() != json::Node::Kind::kWhole ||
      life->whole() > kLongestLife) {
    Fail(EACCES, "metadata service of the machine: invalid token");
  }
  return MakeToken(token->text(), "the machine",
                   std::time(nullptr) + static_cast<int64_t>(life->whole()));
}

s3::CredentialsPtr FromMachine(const s3::Environment& environment, http::Client& client) {
  constexpr std::chrono::seconds kTimeout{1};
  if (environment("NO_GCE_CHECK") == "true") return nullptr;
  std::string host = environment("GCE_METADATA_HOST");
  if (host.empty()) host = "169.254.169.254";
  http::Request request;
  request.url =
      fmt::format("http://{}/computeMetadata/v1/instance/service-accounts/default/token", host);
  request.headers = {"Metadata-Flavor: Google"};
  request.has_secret = true;
  request.limits = {
      .connect = kTimeout, .first_byte = kTimeout, .stall = kTimeout, .deadline = kTimeout};
  http::Response response;
  try {
    response = client.Perform(request, nullptr, std::stop_token());
  } catch (const Error&) {
    return nullptr;  // There is no such service.
  }
  // Other clouds have another service at this address, and a machine may have no account.
  if (response.status != http::kOk || response.Find("metadata-flavor") != "Google") return nullptr;
  return ParseResponse(std::move(response.body));
}

// Returns a token as the session token of credentials: that of -o token_file; else of
// CKPTFS_GCS_TOKEN; else what the program in CKPTFS_GCS_TOKEN_COMMAND prints; else that of the
// service account of this virtual machine, from its metadata service, which takes a second on other
// machines. Null: anonymous. Throws Error: EACCES, EINVAL, or the error of reading the file.
s3::CredentialsPtr FindToken(const s3::Environment& environment, http::Client& client,
                             const SourceOptions& options) {
  if (!options.token_file.empty()) {
    return MakeToken(ReadToken(options.token_file), "token_file");
  }
  if (const std::string token = environment("CKPTFS_GCS_TOKEN"); !token.empty()) {
    return MakeToken(token, "CKPTFS_GCS_TOKEN");
  }
  if (const std::string command = environment("CKPTFS_GCS_TOKEN_COMMAND"); !command.empty()) {
    constexpr const char* kName = "CKPTFS_GCS_TOKEN_COMMAND";
    return MakeToken(s3::RunProgram(command, kName, options.timeout), kName);
  }
  return FromMachine(environment, client);
}

// Thread-safe.
class Bucket final : public s3::Bucket {
 public:
  // Finds a token. Throws Error as FindToken does, and EINVAL if STORAGE_EMULATOR_HOST is not a
  // URL, or a token would be sent to it in the clear.
  Bucket(std::string name, const s3::Environment& environment, const SourceOptions& options);

  http::PreparedRequest Prepare(std::string_view key, const s3::Query& query,
                                const std::vector<std::string>& headers) override;
  bool Recover(const http::PreparedRequest& prepared, const http::Response& response) override;

 private:
  s3::CredentialsPtr GetToken();  // Null: anonymous.

  const std::string name_;
  const std::string server_;  // "https://storage.googleapis.com".
  s3::CredentialsCache tokens_;
};

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

bool IsOfBucket(char c) {
  return (c >= 'a' && c <= 'z') || IsDigit(c) || c == '-' || c == '.' || c == '_';
}

s3::ObjectId ParseUri(const Location& uri) {
  s3::ObjectId id{.bucket = uri.authority, .key = "", .version = ""};
  if (id.bucket.empty()) Fail(EINVAL, "missing bucket (expected gs://bucket/key)");
  // The bucket may be a user with a password, which no message may contain.
  if (!std::ranges::all_of(id.bucket, IsOfBucket)) {
    Fail(EINVAL, "invalid bucket name (expected gs://bucket/key)");
  }
  if (!uri.path.empty()) id.key = uri.path.substr(1);
  return id;
}

SchemeSource Open(const Location& location, const SourceOptions& options) {
  const s3::ObjectId id = ParseUri(location);
  return s3::OpenInBucket(std::make_shared<Bucket>(id.bucket, s3::ProcessEnvironment, options), id,
                          fmt::format("gs://{}/", id.bucket),
                          fmt::format("gs://{}/{}", id.bucket, id.key));
}

constexpr std::string_view kNames[] = {"gs"};

}  // namespace
}  // namespace gs

extern const Scheme gs_scheme{.names = gs::kNames, .open = gs::Open};

}  // namespace ckptfs
