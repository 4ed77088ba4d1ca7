// URIs of Redis.
//
//   redis://[[user]:password@]host[:port]/KEY[?db=NUMBER]      rediss:// is the same over TLS
//
// KEY extends to the end and is not decoded, as in tensorizer: it may contain spaces, question
// marks and percent signs. Slashes before it are ignored. User and password are percent-encoded, as
// in redis-cli; better places for them are the environment variables of FillFromEnvironment. If KEY
// contains an '@' and a port precedes it, an '@' must precede the host, too:
// redis://@host:6379/KEY.

#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>

#include "parser/location.h"

namespace ckptfs::redis {

// Where a server listens.
struct Address {
  std::string host;  // A name, or an IP address; one of IPv6 without brackets.
  uint16_t port = 6379;

  bool operator==(const Address&) const = default;
  bool operator<(const Address& other) const {
    return std::tie(host, port) < std::tie(other.host, other.port);
  }
};

// Returns "host:port", "[::1]:6379".
std::string ToString(const Address& address);

// Whether `host` consists of characters that are valid in a URL's host.
bool IsHost(std::string_view host);

struct Target {
  Address server;
  bool is_tls = false;
  std::string user;      // Empty: the default user.
  std::string password;  // Empty: no password.
  uint64_t database = 0;
  std::string key;

  // Returns the URI for messages: without user and password.
  std::string name() const;
};

// Throws Error(EINVAL), whose message contains no secret.
Target ParseUri(const Location& uri);

// Sets user and password, unless the URI has them, from CKPTFS_REDIS_USER, and
// CKPTFS_REDIS_PASSWORD or REDISCLI_AUTH.
void FillFromEnvironment(Target& target);

}  // namespace ckptfs::redis
