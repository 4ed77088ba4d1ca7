// Credentials that programs and metadata services of this machine provide.

#pragma once

#include <chrono>
#include <string>

#include "parser/source/s3/credentials.h"

namespace ckptfs::s3 {

// Each function returns null if there are no credentials, and throws as those of credentials.h.

// Runs a program without a shell and returns what it prints. `setting` is where the command line is
// from, for messages.
//
// The program is as trusted as a command that the user types, but it may hang, or print without an
// end: Error(EACCES).
std::string RunProgram(const std::string& command_line, const std::string& setting,
                       std::chrono::seconds timeout);

// Runs `credential_process` of a profile and parses its output.
CredentialsPtr FromProcess(const std::string& command_line, std::chrono::seconds timeout);

// Requests credentials from the server that a container orchestrator runs.
CredentialsPtr FromContainer(const CredentialContext& context);

// Requests credentials from the metadata service of an AWS virtual machine. On other machines this
// takes a second.
CredentialsPtr FromInstance(const CredentialContext& context);

}  // namespace ckptfs::s3
