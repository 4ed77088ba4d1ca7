// Who we are to S3.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "parser/base/secret.h"

namespace ckptfs::s3 {

// What requests are signed with. Immutable once it is made.
struct Credentials {
  std::string access_key;  // No secret, but it identifies the user.

  // "AWS4" and the secret key, which is how it is used.
  std::shared_ptr<const SecretBytes> signing_secret;

  std::string session_token;  // Empty if they are not temporary. Travels in each request.

  // When they end, in seconds since the epoch; nothing if that is not known, or never.
  std::optional<int64_t> expiry;

  std::string origin;    // For messages: "the environment".
  std::string endpoint;  // The server that they are for, as a URL; empty if nothing tells it.
};

using CredentialsPtr = std::shared_ptr<const Credentials>;

// Keeps the secret in memory that nobody else sees. Throws Error(EACCES) if there is a character in
// them that cannot be in a header.
CredentialsPtr MakeCredentials(std::string access_key, std::string_view secret_key,
                               std::string session_token, std::string origin,
                               std::optional<int64_t> expiry = std::nullopt);

// Whether they are the same to a server.
bool AreSame(const Credentials& a, const Credentials& b);

}  // namespace ckptfs::s3
