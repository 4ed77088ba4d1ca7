// The order in which credentials are looked for, which is that of botocore.

#include "parser/source/s3/providers.h"

#include <cerrno>
#include <memory>

#include "parser/base/error.h"

namespace ckptfs::s3 {
namespace {

CredentialsPtr FromEnvironment(const Config& config) {
  const std::string key = config.Variable("AWS_ACCESS_KEY_ID");
  if (key.empty()) return nullptr;
  const std::string secret = config.Variable("AWS_SECRET_ACCESS_KEY");
  if (secret.empty()) {
    Fail(EACCES, "there is AWS_ACCESS_KEY_ID, but no AWS_SECRET_ACCESS_KEY in the environment");
  }
  return MakeCredentials(key, secret, config.Variable("AWS_SESSION_TOKEN"), "the environment");
}

CredentialsPtr FromTokenInEnvironment(const Surroundings& around) {
  const std::string file = around.config.Variable("AWS_WEB_IDENTITY_TOKEN_FILE");
  const std::string arn = around.config.Variable("AWS_ROLE_ARN");
  if (file.empty() || arn.empty()) return nullptr;
  return TakeRoleByToken(
      around,
      {.arn = arn, .session = around.config.Variable("AWS_ROLE_SESSION_NAME"), .external_id = ""},
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

}  // namespace

CredentialsPtr FindCredentials(const Surroundings& around) {
  const Config& config = around.config;
  CredentialsPtr found;
  if (!config.is_profile_explicit()) {
    found = FromEnvironment(config);
    if (!found) found = FromTokenInEnvironment(around);
  }
  if (!found) found = FromProfile(around, config.profile());
  if (!found) found = FromContainer(around);
  if (!found) found = FromInstance(around);
  if (!found) found = FromS3cmd(config);
  return found;
}

}  // namespace ckptfs::s3
