// URIs of Redis, connections to its servers, and the commands and replies that are sent over them.
// libcurl looks up the host, connects, and encrypts; RESP is written and read here.
//
//   redis://[[user]:password@]host[:port]/KEY[?db=NUMBER]      rediss:// is the same over TLS
//
// KEY extends to the end and is not decoded, as in tensorizer: it may contain spaces, question
// marks and percent signs. Slashes before it are ignored. User and password are percent-encoded, as
// in redis-cli; better places for them are the environment variables of FillFromEnvironment. If KEY
// contains an '@' and a port precedes it, an '@' must precede the host, too:
// redis://@host:6379/KEY.

#pragma once

#include <array>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <tuple>

#include "parser/codec/resp.h"
#include "parser/io/location.h"
#include "parser/source/curl.h"

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

// The most bytes that one command requests: servers copy them before they send them, so that large
// ranges are slow.
constexpr uint64_t kLargestRange = uint64_t{1} << 20U;

// Encodes STRLEN. The reply is the length of the value of `key`; 0 if there is none.
std::string EncodeStrlen(std::string_view key);

// Encodes GETRANGE for `length` bytes, at least one, of the value of `key`. The reply is shorter if
// the value is, and empty if there is none.
std::string EncodeGetRange(std::string_view key, uint64_t offset, uint64_t length);

// Throws the Error for an error reply: EACCES, EINVAL if the value of the key is not a string,
// EREMOTEIO, or a TransientError. Returns if `head` is no error.
void ThrowIfError(const resp::Head& head);

// Returns the length in the reply to STRLEN. Throws Error as ThrowIfError does, or EPROTO.
uint64_t ParseLengthReply(const resp::Head& head);

// Returns the number of bytes that follow in the reply to GETRANGE; at most `most`. Throws Error as
// ParseLengthReply does.
uint64_t ParseRangeReply(const resp::Head& head, uint64_t most);

// Time limits of one attempt.
struct Limits {
  std::chrono::milliseconds connect{0};
  std::chrono::milliseconds stall{0};  // Without data in either direction.
  std::chrono::steady_clock::time_point deadline;
};

// Belongs to one thread at a time, except for ShutDown. Errors of the connection are ECONNRESET,
// ETIMEDOUT, EPROTO (malformed RESP) or as of ThrowCurlError; the connection is unusable then.
class Connection {
 public:
  // Connects to `server`, and logs in as `target` requires. Throws Error: EACCES if the login
  // fails. `share` must outlive this. Ends soon after `stop` is requested.
  Connection(const Address& server, const Target& target, const CurlShare& share,
             const TrustedCertificates& trust, Limits limits, const std::stop_token& stop);

  // Sets the limits of the next use.
  void SetLimits(Limits limits);

  // Whether it is open, and no unexpected data has been received.
  bool is_idle() const;

  // Ends calls that block in another thread.
  void ShutDown() { curl_.ShutDown(); }

  // Sends all of `commands`.
  void Send(std::string_view commands);

  // Reads the first line of the next reply. Its text is valid until the next call of a method.
  resp::Head ReadHead();

  // Reads some bytes of a value, at least one, and at most the size of `room`.
  size_t Read(std::span<std::byte> room);

  // Reads the end of a value.
  void ReadEnd();

  // Reads and discards the rest of a reply.
  void Skip(const resp::Head& head);

 private:
  using Clock = std::chrono::steady_clock;

  void LogIn(const Target& target);
  size_t Receive(std::span<std::byte> room);
  void Fill();
  void Wait(short events);

  CurlConnection curl_;
  curl_socket_t socket_ = CURL_SOCKET_BAD;
  Limits limits_;
  Clock::time_point changed_;  // When bytes were last transferred in either direction.
  std::array<std::byte, size_t{16} << 10U> buffer_ = {};
  size_t begin_ = 0;  // Of the bytes in the buffer that have not been read.
  size_t end_ = 0;
};

}  // namespace ckptfs::redis
