// Finds AWS credentials as the AWS tools do: environment, profiles, roles, and the machine.

#pragma once

#include <string>

#include "parser/io/source_options.h"
#include "parser/source/http/client.h"
#include "parser/source/s3/config.h"
#include "parser/source/s3/credentials.h"

namespace ckptfs::s3 {

// What a provider of credentials may use. Outlives it.
struct CredentialContext {
  const Config& config;
  http::Client& client;
  const SourceOptions& options;  // `timeout` limits each provider.
};

// Each function returns null if its provider has no credentials. Throws Error if it has some that
// cannot be used: EACCES, or the error of the request for them.

// Tries all providers in the order of the AWS tools, then that of tensorizer. Null: anonymous.
CredentialsPtr FindCredentials(const CredentialContext& context);

// A profile of the files: keys, a program that prints them, or a role to assume.
CredentialsPtr FromProfile(const CredentialContext& context, const std::string& profile);

}  // namespace ckptfs::s3
