// Settings of the AWS tools: the environment and their files.
//
// Two files contain sections for profiles: [name] in ~/.aws/credentials, which is for secrets, and
// [profile name] in ~/.aws/config. A profile may be in either or in both.

#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "parser/codec/ini.h"
#include "parser/io/source_options.h"

namespace ckptfs::s3 {

// Returns the value of an environment variable; empty if it is not set.
using Environment = std::function<std::string(const std::string& name)>;

// The environment of this process.
std::string ProcessEnvironment(const std::string& name);

// Immutable after construction.
class Config {
 public:
  // Reads the files. Throws Error: the errno of reading, with the name of the file, or EACCES if
  // neither contains the requested profile.
  Config(Environment environment, const SourceOptions& options);

  std::string Variable(const std::string& name) const { return environment_(name); }

  // The profile in use; "default" if none is requested.
  const std::string& profile() const { return profile_; }

  // Whether an option requests the profile: it then takes precedence over the environment.
  bool is_profile_explicit() const { return is_explicit_; }

  // Return the section of a profile in one of the files; empty if it is missing.
  const ini::Section& InCredentials(std::string_view profile) const;
  const ini::Section& InConfig(std::string_view profile) const;

  // Returns a setting of a profile from either file; that for secrets takes precedence.
  std::string_view Setting(std::string_view profile, std::string_view name) const;

  // Returns a setting of the profile below "s3 =".
  std::string S3Setting(std::string_view name) const;

  // Returns the endpoint of a service, "s3" or "sts", in the environment or the profile; empty if
  // it is not set.
  std::string EndpointOf(std::string_view service) const;

  // The section "default" of the file of s3cmd, which tensorizer reads. Empty if the file or one of
  // the keys is missing.
  const ini::Section& s3cmd() const { return s3cmd_; }

  // Empty if it is not set.
  std::string region() const { return region_; }

  const std::string& credentials_file() const { return credentials_file_; }

 private:
  std::string InHome(const std::string& name) const;

  const Environment environment_;
  std::string profile_;
  bool is_explicit_ = false;
  std::string region_;
  std::string credentials_file_;
  std::string config_file_;
  ini::Sections credentials_;
  ini::Sections config_;  // Names are verbatim: "profile training".
  ini::Section s3cmd_;
};

}  // namespace ckptfs::s3
