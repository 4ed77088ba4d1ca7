// Providers are tried in the order of botocore.

#include "parser/source/s3/credentials.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/base/user_settings.h"
#include "parser/source/http/object.h"
#include "parser/source/s3/location.h"
#include "parser/source/s3/machine_credentials.h"
#include "parser/source/s3/response.h"
#include "parser/source/s3/sigv4.h"

namespace ckptfs::s3 {
namespace {

// All credentials but the secret are part of a header of each request.
bool IsValidInHeader(std::string_view text) {
  constexpr size_t kLongest = size_t{16} << 10U;  // Bytes; tokens of AWS have up to 4 KiB.
  return text.size() <= kLongest &&
         std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7f; });
}

}  // namespace

CredentialsPtr MakeCredentials(std::string access_key, std::string_view secret_key,
                               std::string session_token, std::string origin,
                               std::optional<int64_t> expiry) {
  constexpr std::string_view kVersion = "AWS4";
  if (access_key.empty() || secret_key.empty() || !IsValidInHeader(access_key) ||
      !IsValidInHeader(secret_key) || !IsValidInHeader(session_token)) {
    Fail(EACCES, "invalid credentials of {}: empty, or with characters that no key contains",
         origin);
  }
  auto secret = std::make_shared<SecretBytes>(kVersion.size() + secret_key.size());
  const std::span<std::byte> bytes = secret->bytes();
  std::ranges::copy(std::as_bytes(std::span(kVersion)), bytes.begin());
  std::ranges::copy(std::as_bytes(std::span(secret_key)), bytes.subspan(kVersion.size()).begin());
  return std::make_shared<const Credentials>(Credentials{.access_key = std::move(access_key),
                                                         .signing_secret = std::move(secret),
                                                         .session_token = std::move(session_token),
                                                         .expiry = expiry,
                                                         .origin = std::move(origin),
                                                         .endpoint = ""});
}

bool AreSame(const Credentials& a, const Credentials& b) {
  return a.access_key == b.access_key && a.session_token == b.session_token &&
         std::ranges::equal(a.signing_secret->bytes(), b.signing_secret->bytes());
}

namespace {

// Seconds. Clocks of two machines differ, and a request takes time.
constexpr int64_t kRenewBefore = 300;
constexpr int64_t kPause = 30;  // Between two renewals.

}  // namespace

bool CredentialsCache::IsValid(const Credentials& credentials) const {
  return !credentials.expiry || now_() < *credentials.expiry;
}

bool CredentialsCache::IsDue(const Credentials& credentials) const {
  return credentials.expiry && now_() >= *credentials.expiry - kRenewBefore &&
         (now_() >= found_at_ + kPause || !IsValid(credentials));
}

void CredentialsCache::FindAgain() {
  const bool was_found = current_ != nullptr;
  is_finding_ = true;
  mutex_.unlock();
  CredentialsPtr found;
  std::exception_ptr failure;
  try {
    found = find_();
    // A provider that had credentials and has none now has failed: do not become anonymous.
    if (!found && was_found) Fail(EACCES, "credentials no longer found");
  } catch (...) {
    failure = std::current_exception();
  }
  mutex_.lock();
  is_finding_ = false;
  found_at_ = now_();
  found_again_.notify_all();
  if (failure) {
    if (is_found_ && current_ && IsValid(*current_)) return;
    std::rethrow_exception(failure);
  }
  is_found_ = true;
  current_ = std::move(found);
}

CredentialsPtr CredentialsCache::Get() {
  MutexLock lock(mutex_);
  while (is_finding_ && !(is_found_ && current_ && IsValid(*current_))) found_again_.wait(lock);
  if (!is_finding_ && (!is_found_ || (current_ && IsDue(*current_)))) FindAgain();
  return current_;
}

bool CredentialsCache::Renew(const std::string& access_key) {
  MutexLock lock(mutex_);
  while (is_finding_) found_again_.wait(lock);
  if (!current_) return false;
  if (current_->access_key != access_key) return true;  // Another thread has renewed them.
  if (renewed_at_ && now_() < *renewed_at_ + kPause) return false;
  renewed_at_ = now_();
  const CredentialsPtr refused = current_;
  FindAgain();
  return current_ && !AreSame(*refused, *current_);
}

namespace {

// A role, which the security token service (STS) lets a user assume: it returns credentials that
// are valid for an hour.
struct Role {
  std::string arn;
  std::string session;      // Name in the log of the account; empty: "ckptfs".
  std::string external_id;  // Empty: none.
};

struct Service {
  Endpoint endpoint;
  std::string region;
};

Service ResolveService(const Config& config) {
  const std::string region = config.region();
  if (const std::string url = config.EndpointOf("sts"); !url.empty()) {
    return {ParseEndpoint(url), region.empty() ? "us-east-1" : region};
  }
  if (!IsRegion(region)) return {ParseEndpoint("sts.amazonaws.com"), "us-east-1"};
  return {ParseEndpoint(fmt::format("sts.{}.{}", region, AwsDomain(region))), region};
}

Query BuildForm(std::string action, const Role& role) {
  Query form = {{"Action", std::move(action)},
                {"Version", "2011-06-15"},
                {"RoleArn", role.arn},
                {"RoleSessionName", role.session.empty() ? "ckptfs" : role.session}};
  if (!role.external_id.empty()) form.emplace_back("ExternalId", role.external_id);
  return form;
}

// `by` is null if the form contains the identity.
CredentialsPtr RequestCredentials(const CredentialContext& context, const Query& form,
                                  const Credentials* by, const std::string& origin) {
  const Service service = ResolveService(context.config);
  const auto prepare = [&] {
    UnsignedRequest post{.method = "POST",
                         .host = service.endpoint.host,
                         .path = service.endpoint.path + "/",
                         .query = "",
                         .headers = {{"content-type", "application/x-www-form-urlencoded"}},
                         .body = CanonicalQuery(form)};
    http::Request request;
    request.method = post.method;
    request.url = fmt::format("{}://{}{}", service.endpoint.scheme, post.host, post.path);
    request.body = post.body;
    request.has_secret = by == nullptr || !by->session_token.empty();
    if (by != nullptr) {
      request.headers =
          Sign(post, {.region = service.region, .service = "sts"}, *by, std::time(nullptr));
    } else {
      request.headers = {"content-type: application/x-www-form-urlencoded"};
    }
    return request;
  };
  const http::Response response =
      http::PerformWithRetries(context.client, prepare, context.options);
  if (response.status != http::kOk) {
    const ErrorResponse error = ParseErrorResponse(response.body);
    Fail(EACCES, "{}: security token service returned status {}{}{}", origin, response.status,
         error.code.empty() ? "" : ", ", error.code);
  }
  return ParseXmlCredentials(response.body, origin);
}

CredentialsPtr AssumeRole(const CredentialContext& context, const Role& role,
                          const Credentials& by) {
  return RequestCredentials(context, BuildForm("AssumeRole", role), &by,
                            "role " + Quoted(role.arn));
}

CredentialsPtr AssumeRoleWithWebIdentity(const CredentialContext& context, const Role& role,
                                         const std::string& token_file) {
  Query form = BuildForm("AssumeRoleWithWebIdentity", role);
  form.emplace_back("WebIdentityToken", ReadToken(token_file));
  return RequestCredentials(context, form, nullptr, "role " + Quoted(role.arn));
}

CredentialsPtr FromEnvironment(const Config& config) {
  const std::string key = config.Variable("AWS_ACCESS_KEY_ID");
  if (key.empty()) return nullptr;
  const std::string secret = config.Variable("AWS_SECRET_ACCESS_KEY");
  if (secret.empty()) {
    Fail(EACCES, "missing AWS_SECRET_ACCESS_KEY in the environment (found AWS_ACCESS_KEY_ID)");
  }
  return MakeCredentials(key, secret, config.Variable("AWS_SESSION_TOKEN"), "the environment");
}

CredentialsPtr FromTokenInEnvironment(const CredentialContext& context) {
  const std::string file = context.config.Variable("AWS_WEB_IDENTITY_TOKEN_FILE");
  const std::string arn = context.config.Variable("AWS_ROLE_ARN");
  if (file.empty() || arn.empty()) return nullptr;
  return AssumeRoleWithWebIdentity(
      context,
      {.arn = arn, .session = context.config.Variable("AWS_ROLE_SESSION_NAME"), .external_id = ""},
      file);
}

CredentialsPtr FromS3cmd(const Config& config) {
  const ini::Section& section = config.s3cmd();
  if (section.empty()) return nullptr;
  const CredentialsPtr found = MakeCredentials(
      std::string(ini::Find(section, "access_key")), ini::Find(section, "secret_key"),
      std::string(ini::Find(section, "access_token")), "~/.s3cfg");
  Credentials credentials = *found;
  if (std::string host(ini::Find(section, "host_base")); !host.empty()) {
    if (host.find("://") == std::string::npos) {
      host.insert(0, ini::Find(section, "use_https") == "False" ? "http://" : "https://");
    }
    credentials.endpoint = host;
  }
  return std::make_shared<const Credentials>(std::move(credentials));
}

constexpr size_t kMostRoles = 8;  // One after another.

CredentialsPtr FindKeys(const ini::Section& section, const std::string& origin) {
  const std::string_view key = ini::Find(section, "aws_access_key_id");
  if (key.empty()) return nullptr;
  const std::string_view secret = ini::Find(section, "aws_secret_access_key");
  if (secret.empty())
    Fail(EACCES, "{}: missing aws_secret_access_key (found aws_access_key_id)", origin);
  return MakeCredentials(std::string(key), secret,
                         std::string(ini::Find(section, "aws_session_token")), origin);
}

// Returns the keys of a profile, or those that its program prints.
CredentialsPtr FindOwnKeys(const CredentialContext& context, const std::string& profile) {
  const Config& config = context.config;
  const std::string origin = "profile " + Quoted(profile);
  if (CredentialsPtr keys = FindKeys(config.InCredentials(profile), origin)) return keys;
  if (const std::string_view process = config.Setting(profile, "credential_process");
      !process.empty()) {
    return FromProcess(std::string(process), context.options.timeout);
  }
  return FindKeys(config.InConfig(profile), origin);
}

CredentialsPtr FromSource(const CredentialContext& context, std::string_view name) {
  if (name == "EcsContainer") return FromContainer(context);
  if (name == "Ec2InstanceMetadata") return FromInstance(context);
  const std::string key = context.config.Variable("AWS_ACCESS_KEY_ID");
  const std::string secret = context.config.Variable("AWS_SECRET_ACCESS_KEY");
  if (name != "Environment" || key.empty() || secret.empty()) return nullptr;
  return MakeCredentials(key, secret, context.config.Variable("AWS_SESSION_TOKEN"),
                         "the environment");
}

// `profiles` are the profile and those that refer to it by "source_profile"; the profile is the
// last.
CredentialsPtr FromChain(const CredentialContext& context, std::vector<std::string>& profiles) {
  const std::string profile = profiles.back();
  const auto setting = [&](std::string_view name) {
    return std::string(context.config.Setting(profile, name));
  };
  if (const std::string arn = setting("role_arn"); !arn.empty()) {
    const Role role{
        .arn = arn, .session = setting("role_session_name"), .external_id = setting("external_id")};
    if (const std::string file = setting("web_identity_token_file"); !file.empty()) {
      return AssumeRoleWithWebIdentity(context, role, file);
    }
    if (!setting("mfa_serial").empty()) {
      Fail(EACCES,
           "profile {}: multi-factor authentication is not supported ({}): use aws configure "
           "export-credentials",
           Quoted(profile), Quoted(setting("mfa_serial")));
    }
    CredentialsPtr by;
    if (const std::string name = setting("credential_source"); !name.empty()) {
      by = FromSource(context, name);
    } else if (const std::string source = setting("source_profile"); source == profile) {
      by = FindOwnKeys(context, profile);
    } else if (!source.empty()) {
      if (profiles.size() == kMostRoles) {
        Fail(EACCES, "profile {}: too many roles in a chain: more than {}",
             Quoted(profiles.front()), kMostRoles);
      }
      profiles.push_back(source);
      by = FromChain(context, profiles);
    }
    if (!by) {
      Fail(EACCES, "profile {}: missing credentials to assume its role", Quoted(profile));
    }
    return AssumeRole(context, role, *by);
  }
  if (!setting("sso_session").empty() || !setting("sso_start_url").empty()) {
    Fail(EACCES,
         "profile {}: single sign-on is not supported: create a profile with "
         "credential_process = aws configure export-credentials --profile {}",
         Quoted(profile), profile);
  }
  return FindOwnKeys(context, profile);
}

// A profile of the files: keys, a program that prints them, or a role to assume.
CredentialsPtr FromProfile(const CredentialContext& context, const std::string& profile) {
  std::vector<std::string> profiles = {profile};
  return FromChain(context, profiles);
}

}  // namespace

CredentialsPtr FindCredentials(const CredentialContext& context) {
  const Config& config = context.config;
  CredentialsPtr found;
  if (!config.is_profile_explicit()) {
    found = FromEnvironment(config);
    if (!found) found = FromTokenInEnvironment(context);
  }
  if (!found) found = FromProfile(context, config.profile());
  if (!found) found = FromContainer(context);
  if (!found) found = FromInstance(context);
  if (!found) found = FromS3cmd(config);
  return found;
}

}  // namespace ckptfs::s3
