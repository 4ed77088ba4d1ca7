#include "parser/source/s3/config.h"

#include <fmt/format.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "parser/base/error.h"
#include "parser/base/text.h"
#include "parser/base/user_settings.h"

namespace ckptfs::s3 {
namespace {

constexpr std::string_view kDefault = "default";

const ini::Section kNoSection;

ini::Sections ReadSections(const std::string& path) {
  const std::optional<std::string> text = ReadOptionalFile(path, "AWS configuration file");
  if (!text) return {};
  try {
    return ini::Read(*text);
  } catch (const Error& e) {
    throw WithContext(path, e);
  }
}

const ini::Section& SectionOf(const ini::Sections& sections, std::string_view name) {
  const auto found = sections.find(name);
  return found == sections.end() ? kNoSection : found->second;
}

// Returns the section [kind name] or [kind "name"].
const ini::Section& NamedSection(const ini::Sections& sections, std::string_view kind,
                                 std::string_view name) {
  const ini::Section& plain = SectionOf(sections, fmt::format("{} {}", kind, name));
  return plain.empty() ? SectionOf(sections, fmt::format("{} \"{}\"", kind, name)) : plain;
}

std::string FirstOf(std::initializer_list<std::string> values) {
  for (const std::string& value : values) {
    if (!value.empty()) return value;
  }
  return {};
}

}  // namespace

std::string ProcessEnvironment(const std::string& name) { return GetEnvironment(name.c_str()); }

Config::Config(Environment environment, const SourceOptions& options)
    : environment_(std::move(environment)), is_explicit_(!options.s3_profile.empty()) {
  const std::string requested =
      FirstOf({options.s3_profile, Variable("AWS_PROFILE"), Variable("AWS_DEFAULT_PROFILE")});
  profile_ = requested.empty() ? kDefault : requested;
  credentials_file_ =
      FirstOf({InHome(Variable("AWS_SHARED_CREDENTIALS_FILE")), InHome("~/.aws/credentials")});
  config_file_ = FirstOf({InHome(Variable("AWS_CONFIG_FILE")), InHome("~/.aws/config")});
  credentials_ = ReadSections(credentials_file_);
  config_ = ReadSections(config_file_);
  if (!requested.empty() && requested != kDefault && InCredentials(requested).empty() &&
      InConfig(requested).empty()) {
    Fail(EACCES, "profile {} not found in {} or {}", Quoted(requested), config_file_,
         credentials_file_);
  }
  region_ = FirstOf({options.s3_region, Variable("AWS_REGION"), Variable("AWS_DEFAULT_REGION"),
                     std::string(Setting(profile_, "region"))});
  s3cmd_ = SectionOf(ReadSections(InHome("~/.s3cfg")), kDefault);
  if (ini::Find(s3cmd_, "access_key").empty() || ini::Find(s3cmd_, "secret_key").empty()) {
    s3cmd_.clear();
  }
}

const ini::Section& Config::InCredentials(std::string_view profile) const {
  return SectionOf(credentials_, profile);
}

const ini::Section& Config::InConfig(std::string_view profile) const {
  const ini::Section& named = NamedSection(config_, "profile", profile);
  return named.empty() && profile == kDefault ? SectionOf(config_, kDefault) : named;
}

std::string_view Config::Setting(std::string_view profile, std::string_view name) const {
  const std::string_view setting = ini::Find(InCredentials(profile), name);
  return setting.empty() ? ini::Find(InConfig(profile), name) : setting;
}

std::string Config::S3Setting(std::string_view name) const {
  return std::string(ini::Find(ini::ReadValue(Setting(profile_, "s3")), name));
}

std::string Config::EndpointOf(std::string_view service) const {
  if (Variable("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS") == "true") return {};
  std::string from_environment =
      FirstOf({Variable("AWS_ENDPOINT_URL_" + ToUpper(service)), Variable("AWS_ENDPOINT_URL")});
  if (!from_environment.empty()) return from_environment;
  const std::string_view services = Setting(profile_, "services");
  if (!services.empty()) {
    const ini::Section own =
        ini::ReadValue(ini::Find(NamedSection(config_, "services", services), service));
    if (const std::string_view url = ini::Find(own, "endpoint_url"); !url.empty()) {
      return std::string(url);
    }
  }
  if (service == "s3") {
    if (std::string url = S3Setting("endpoint_url"); !url.empty()) return url;
  }
  return std::string(Setting(profile_, "endpoint_url"));
}

std::string Config::InHome(const std::string& name) const {
  if (!name.starts_with("~/")) return name;
  return Variable("HOME") + name.substr(1);
}

}  // namespace ckptfs::s3
