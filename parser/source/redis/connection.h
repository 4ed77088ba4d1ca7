// A connection to one server: made, encrypted and looked up by libcurl, spoken over by us.

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
#include "parser/source/http/connection.h"
#include "parser/source/redis/uri.h"

namespace ckptfs::redis {

// How long a server may be silent, and until when all that is waited for must be there.
struct Limits {
  std::chrono::milliseconds stall{0};
  std::chrono::steady_clock::time_point deadline;
};

// Belongs to one thread at a time, but for ShutDown. What goes wrong with a connection is
// Error(ECONNRESET), ETIMEDOUT, ECONNREFUSED, EHOSTUNREACH (no such host) or EPROTO (TLS, and what
// is no RESP); it is of no use then.
class Connection {
 public:
  // Connects to `server`, and logs in as `target` says. Throws Error, EACCES if the server does not
  // let us in; returns soon after `stop` wants it.
  Connection(const Address& server, const Target& target, const http::Trust& trust, Limits limits,
             const std::stop_token& stop);

  // Counts anew, for the next use.
  void SetLimits(Limits limits);

  // Whether it is still open, and nothing has come that nobody has asked for.
  bool is_idle() const;

  // Ends what another thread is waiting for, at once.
  void ShutDown() { curl_.ShutDown(); }

  // Sends all of `commands`.
  void Send(std::string_view commands);

  // Reads the line that the next answer begins with. What it points into stays until the next call
  // of a method.
  resp::Head ReadHead();

  // Reads some bytes of a value, at least one, and not more than `room` has.
  size_t Read(std::span<std::byte> room);

  // Reads what ends a value.
  void ReadEnd();

  // Reads all that belongs to an answer, and leaves it.
  void Skip(const resp::Head& head);

 private:
  using Clock = std::chrono::steady_clock;

  void LogIn(const Target& target);
  size_t Receive(std::span<std::byte> room);
  void Fill();
  void Wait(short events);
  [[noreturn]] void FailToConnect(CURLcode code, const char* details) const;

  http::Connection curl_;
  curl_socket_t socket_ = CURL_SOCKET_BAD;
  Limits limits_;
  Clock::time_point changed_;  // When bytes last went either way.
  std::array<std::byte, size_t{16} << 10U> buffer_ = {};
  size_t begin_ = 0;  // Of what has been received and not been read.
  size_t end_ = 0;
};

}  // namespace ckptfs::redis
