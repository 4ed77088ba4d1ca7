// Connections to Redis servers, and the commands and replies that are sent over them. libcurl looks
// up the host, connects, and encrypts; RESP is written and read here.

#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>

#include "parser/codec/resp.h"
#include "parser/source/curl_connection.h"
#include "parser/source/redis/uri.h"

namespace ckptfs::redis {

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
  std::chrono::milliseconds stall{0};  // Without data in either direction.
  std::chrono::steady_clock::time_point deadline;
};

// Belongs to one thread at a time, except for ShutDown. Errors of the connection are ECONNRESET,
// ETIMEDOUT, EPROTO (malformed RESP) or as of ThrowCurlError; the connection is unusable then.
class Connection {
 public:
  // Connects to `server`, and logs in as `target` requires. Throws Error: EACCES if the login
  // fails. Ends soon after `stop` is requested.
  Connection(const Address& server, const Target& target, const TrustedCertificates& trust,
             Limits limits, const std::stop_token& stop);

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
