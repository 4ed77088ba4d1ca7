// The places where credentials come from.

#pragma once

#include <chrono>
#include <string>

#include "parser/io/source_options.h"
#include "parser/source/http/client.h"
#include "parser/source/s3/config.h"
#include "parser/source/s3/credentials.h"

namespace ckptfs::s3 {

// What a provider may ask. Outlives it. None takes much longer than options.timeout.
struct Surroundings {
  const Config& config;
  http::Client& client;
  const SourceOptions& options;
};

// Each returns null if its place has no credentials. Throws Error if there are some that cannot be
// had: EACCES, or what asking for them throws.

// All places in the order of the AWS tools, and that of tensorizer at last. Null: we are anonymous.
CredentialsPtr FindCredentials(const Surroundings& around);

// A profile of the files: keys, a program that prints them, or a role that we may take on.
CredentialsPtr FromProfile(const Surroundings& around, const std::string& profile);

// The output of a program, which has so long for it.
CredentialsPtr FromProcess(const std::string& command_line, std::chrono::seconds patience);

// The server that an orchestrator of containers runs for them.
CredentialsPtr FromContainer(const Surroundings& around);

// The server that tells a virtual machine of AWS about itself. Where there is none, a second goes
// by.
CredentialsPtr FromInstance(const Surroundings& around);

// What a role is taken on with: by the security token service.
struct Role {
  std::string arn;
  std::string session;      // A name for the log of the account; empty: ours.
  std::string external_id;  // Empty: none.
};

CredentialsPtr TakeRole(const Surroundings& around, const Role& role, const Credentials& by);

// With a token that another service has issued, which is in a file.
CredentialsPtr TakeRoleByToken(const Surroundings& around, const Role& role,
                               const std::string& token_file);

}  // namespace ckptfs::s3
