// Requests to web servers: one at a time for each thread, over connections that are kept.

#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ckptfs::http {

struct Request {
  std::string method = "GET";
  std::string url;  // As it goes over the wire: percent-encoded, without user information.
  std::vector<std::string> headers;  // "Name: value". For this server alone.
  std::string body;

  // Whether a credential goes with it that others could use: a token or a password, but not a
  // signature. Over http:// such a request takes no proxy.
  bool has_secret = false;

  // How long the server may be silent, and how long all of it may take.
  std::chrono::milliseconds stall{10'000};
  std::chrono::milliseconds deadline{60'000};
};

struct Response {
  int status = 0;
  std::vector<std::pair<std::string, std::string>> headers;  // Names in lower case.
  std::string body;      // As far as no receiver took it, and not more than 1 MiB.
  std::string location;  // Where a redirect leads: an absolute URL. Empty if it is none.

  // The value of a header; empty if there is none of that name, which is in lower case.
  std::string_view Find(std::string_view name) const;
};

// Who takes the body of a response. Belongs to the thread that performs the request.
class Receiver {
 public:
  virtual ~Receiver() = default;

  // Called when the headers are there. Returns whether the body shall go to Take; else it becomes
  // Response::body. What it throws ends the request, and Perform throws it.
  virtual bool Begin(const Response& head) = 0;

  // The next bytes of the body. May throw as Begin does.
  virtual void Take(std::span<const std::byte> bytes) = 0;
};

constexpr std::string_view kProxyWantsPassword =
    "the proxy needs authorisation: put user and password into its URL";

// Thread-safe.
class Client {
 public:
  struct Options {
    std::string ca_file;     // Empty: what the system trusts.
    std::string user_agent;  // "ckptfs/0.1.0".
  };

  explicit Client(const Options& options);
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client();

  // Sends a request and waits for its answer, whatever its status; does not follow redirects.
  // `receiver` may be null. Throws Error: ECANCELED soon after `stop` wants it or
  // a Cancellation, ETIMEDOUT after a stall or the deadline, ECONNREFUSED, EHOSTUNREACH (no such
  // host), EACCES (the proxy wants a password), EPROTO (TLS and certificates), ECONNRESET (whatever
  // else breaks a connection, or is no HTTP). Messages have no secrets.
  Response Perform(const Request& request, Receiver* receiver, const std::stop_token& stop);

 private:
  class Pool;
  std::unique_ptr<Pool> pool_;
};

}  // namespace ckptfs::http
