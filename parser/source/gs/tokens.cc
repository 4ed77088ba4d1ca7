#include "parser/source/gs/tokens.h"

#include <fmt/format.h>

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

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/base/hash.h"
#include "parser/base/user_settings.h"
#include "parser/codec/json_document.h"
#include "parser/io/simple_sources.h"
#include "parser/source/s3/machine_credentials.h"

namespace ckptfs::gs {
namespace {

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

}  // namespace

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

}  // namespace ckptfs::gs
