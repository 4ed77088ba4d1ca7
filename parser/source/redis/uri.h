// What a URI of Redis names.
//
//   redis://[[user]:password@]host[:port]/KEY[?db=NUMBER]      rediss:// is the same over TLS
//
// KEY is taken as it is, to the end: nothing in it is decoded, as tensorizer does it, so that it
// may have spaces, question marks and percent signs. Slashes before it do not count. User and
// password are percent-encoded, as redis-cli takes them; better places for them are the environment
// variables that FillFromEnvironment reads. Where KEY has an '@' and a port comes before it, there
// has to be one before the host, too: redis://@host:6379/KEY.

#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>

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

// "host:port", "[::1]:6379".
std::string Shown(const Address& address);

// Whether `host` may be one: it goes into a URL.
bool IsHost(std::string_view host);

struct Target {
  Address server;
  bool is_tls = false;
  std::string user;      // Empty: the default one.
  std::string password;  // Empty: there is none.
  uint64_t database = 0;
  std::string key;

  // As messages call it: without user and password.
  std::string name() const;
};

// Throws Error(EINVAL), whose message has no secret.
Target ReadUri(std::string_view uri);

// Takes what the URI does not say from CKPTFS_REDIS_USER, and CKPTFS_REDIS_PASSWORD or
// REDISCLI_AUTH.
void FillFromEnvironment(Target& target);

}  // namespace ckptfs::redis
