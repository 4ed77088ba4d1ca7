// Credentials of a profile in the files of the AWS tools.

#include <cerrno>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/error.h"
#include "parser/source/s3/providers.h"

namespace ckptfs::s3 {
namespace {

constexpr size_t kMostRoles = 8;  // One after another.

CredentialsPtr KeysIn(const ini::Section& section, const std::string& origin) {
  const std::string_view key = ini::Find(section, "aws_access_key_id");
  if (key.empty()) return nullptr;
  const std::string_view secret = ini::Find(section, "aws_secret_access_key");
  if (secret.empty())
    Fail(EACCES, "{} has aws_access_key_id, but no aws_secret_access_key", origin);
  return MakeCredentials(std::string(key), secret,
                         std::string(ini::Find(section, "aws_session_token")), origin);
}

// Keys, or a program that prints them.
CredentialsPtr OwnKeys(const Surroundings& around, const std::string& profile) {
  const Config& config = around.config;
  const std::string origin = "profile " + Quoted(profile);
  if (CredentialsPtr keys = KeysIn(config.InCredentials(profile), origin)) return keys;
  if (const std::string_view process = config.Setting(profile, "credential_process");
      !process.empty()) {
    return FromProcess(std::string(process), around.options.timeout);
  }
  return KeysIn(config.InConfig(profile), origin);
}

CredentialsPtr FromPlace(const Surroundings& around, std::string_view place) {
  if (place == "EcsContainer") return FromContainer(around);
  if (place == "Ec2InstanceMetadata") return FromInstance(around);
  const std::string key = around.config.Variable("AWS_ACCESS_KEY_ID");
  const std::string secret = around.config.Variable("AWS_SECRET_ACCESS_KEY");
  if (place != "Environment" || key.empty() || secret.empty()) return nullptr;
  return MakeCredentials(key, secret, around.config.Variable("AWS_SESSION_TOKEN"),
                         "the environment");
}

// `profiles` are those that led to the last of them, by "source_profile".
CredentialsPtr FromChain(const Surroundings& around, std::vector<std::string>& profiles) {
  const std::string profile = profiles.back();
  const auto setting = [&](std::string_view name) {
    return std::string(around.config.Setting(profile, name));
  };
  if (const std::string arn = setting("role_arn"); !arn.empty()) {
    const Role role{
        .arn = arn, .session = setting("role_session_name"), .external_id = setting("external_id")};
    if (const std::string file = setting("web_identity_token_file"); !file.empty()) {
      return TakeRoleByToken(around, role, file);
    }
    if (!setting("mfa_serial").empty()) {
      Fail(EACCES, "profile {} wants a code for {}: aws configure export-credentials asks for it",
           Quoted(profile), Quoted(setting("mfa_serial")));
    }
    CredentialsPtr by;
    if (const std::string place = setting("credential_source"); !place.empty()) {
      by = FromPlace(around, place);
    } else if (const std::string source = setting("source_profile"); source == profile) {
      by = OwnKeys(around, profile);
    } else if (!source.empty()) {
      if (profiles.size() == kMostRoles) {
        Fail(EACCES, "profile {} takes more than {} roles one after another",
             Quoted(profiles.front()), kMostRoles);
      }
      profiles.push_back(source);
      by = FromChain(around, profiles);
    }
    if (!by) {
      Fail(EACCES, "profile {} has a role, but nothing to take it on with", Quoted(profile));
    }
    return TakeRole(around, role, *by);
  }
  if (!setting("sso_session").empty() || !setting("sso_start_url").empty()) {
    Fail(EACCES,
         "profile {} is for single sign-on, which is not ours to do: make a profile with "
         "credential_process = aws configure export-credentials --profile {}",
         Quoted(profile), profile);
  }
  return OwnKeys(around, profile);
}

}  // namespace

CredentialsPtr FromProfile(const Surroundings& around, const std::string& profile) {
  std::vector<std::string> profiles = {profile};
  return FromChain(around, profiles);
}

}  // namespace ckptfs::s3
