// What the environment and the files of the AWS tools say.
//
// There are two files with sections for profiles: ~/.aws/credentials has [name], ~/.aws/config has
// [profile name], for only one is for secrets. A profile may be in either or in both.

#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "parser/codec/ini.h"
#include "parser/io/source_options.h"

namespace ckptfs::s3 {

// Returns the value of an environment variable; empty if there is none.
using Environment = std::function<std::string(const std::string& name)>;

// That of this process.
std::string ProcessEnvironment(const std::string& name);

// Immutable once it is made.
class Config {
 public:
  // Reads the files. Throws Error: what reading says, with the name of the file, or EACCES if a
  // profile that was asked for is in neither.
  Config(Environment environment, const SourceOptions& options);

  std::string Variable(const std::string& name) const { return environment_(name); }

  // The profile that counts, "default" if none was asked for.
  const std::string& profile() const { return profile_; }

  // Whether the profile was asked for by an option: then it comes before the environment.
  bool is_profile_explicit() const { return is_explicit_; }

  // Sections of a profile in one of the files; empty if there is none.
  const ini::Section& InCredentials(std::string_view profile) const;
  const ini::Section& InConfig(std::string_view profile) const;

  // A setting of a profile, from either file; that for secrets comes first.
  std::string_view Setting(std::string_view profile, std::string_view name) const;

  // A setting of the profile that is for S3 alone: that of "s3 =".
  std::string S3Setting(std::string_view name) const;

  // The endpoint that the environment or the profile has for a service, "s3" or "sts"; empty if
  // there is none.
  std::string EndpointOf(std::string_view service) const;

  // The file of s3cmd, as tensorizer reads it: its section "default". Empty if there is no such
  // file, or it has not both keys.
  const ini::Section& s3cmd() const { return s3cmd_; }

  // The region as it is known; empty if nothing tells it.
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
  ini::Sections config_;  // Names as they are written: "profile training".
  ini::Section s3cmd_;
};

}  // namespace ckptfs::s3
