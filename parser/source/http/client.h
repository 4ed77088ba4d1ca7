// HTTP requests to web servers. Each thread performs one at a time; connections are reused.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/source/retry_policy.h"

namespace ckptfs::http {

struct Request {
  std::string method = "GET";
  std::string url;                   // As in a request: percent-encoded, without user information.
  std::vector<std::string> headers;  // "Name: value".
  std::string body;

  // Whether a credential is in it that others could use: a token or a password, but not a
  // signature. Over http:// such a request is not sent through a proxy.
  bool has_secret = false;

  uint64_t length = 0;              // Bytes of the body of the response; 0 if not known.
  size_t largest_body = 1U << 20U;  // Bytes of Response::body: the rest is cut off.

  // How many connections will probably be needed at once, this one included, when the response has
  // begun. If round trips are long, they are established meanwhile.
  size_t connections = 1;
  TimeLimits limits;
};

// The status of a request that was answered in full.
constexpr int kOk = 200;

struct Response {
  int status = 0;
  std::chrono::microseconds round_trip{0};                   // To the server; 0 if not known.
  std::chrono::microseconds latency{0};                      // From the request to the first byte.
  std::vector<std::pair<std::string, std::string>> headers;  // Names in lower case.
  std::string body;                                          // Unless a receiver took it.
  std::string location;  // Target of a redirect: an absolute URL. Empty if it is no redirect.

  // Returns the value of the header `name`, which is in lower case; empty if it is missing.
  std::string_view Find(std::string_view name) const;
};

// Receives the body of a response. Belongs to the thread that performs the request.
class Receiver {
 public:
  virtual ~Receiver() = default;

  // Called before the request is sent, when there is a connection for it.
  virtual void Connected() {}

  // Called after the last header. Returns whether the body is passed to Take; else it becomes
  // Response::body. An exception ends the request, and Perform throws it.
  virtual bool Begin(const Response& head) = 0;

  // Receives the next bytes of the body. May throw as Begin does.
  virtual void Take(std::span<const std::byte> bytes) = 0;

  // Called after Take, when no more bytes have arrived. May throw as Begin does.
  virtual void Flush() {}
};

// Message for status 407.
constexpr std::string_view kProxyNeedsPassword =
    "proxy authentication required: put user and password into the proxy's URL";

class ConnectionPool;

// Thread-safe.
class Client {
 public:
  struct Options {
    std::string ca_file;     // Empty: the certificates of the system.
    std::string user_agent;  // "ckptfs/0.1.0".
  };

  explicit Client(const Options& options);
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client();

  // Sends a request and waits for the response, whatever its status. Does not follow redirects.
  // `receiver` may be null. Throws Error: ECANCELED soon after `stop` is requested or the operation
  // is cancelled, ETIMEDOUT after a stall or the deadline, EACCES (the proxy requires a password),
  // ECONNRESET (connection broken), InvalidResponse, or as ThrowCurlError does. Messages contain no
  // secrets.
  Response Perform(const Request& request, Receiver* receiver, const std::stop_token& stop);

  // Closes the connections that no request uses.
  void CloseIdle();

 private:
  const std::unique_ptr<ConnectionPool> pool_;
};

}  // namespace ckptfs::http
