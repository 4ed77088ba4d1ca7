// A libcurl handle with the connections that it keeps open.

#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "parser/source/curl.h"

namespace ckptfs::http {

// What all handles of a client have in common. Empty: as libcurl was built.
struct Trust {
  std::string file;       // With certificates.
  std::string directory;  // With one certificate in each file.
};

// Belongs to one thread at a time, but for ShutDown.
class Connection {
 public:
  // Throws Error(ENOMEM) if libcurl gives no handle.
  Connection(const Trust& trust, const std::string& user_agent);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection();

  CURL* handle() const { return handle_.get(); }

  // Breaks what is open and lets nothing be opened any more, so that a transfer ends at once.
  // Callable from any thread.
  void ShutDown();

 private:
  struct Close {
    void operator()(CURL* handle) const noexcept { LibCurl().easy_cleanup(handle); }
  };

  // What libcurl calls to open and to close a socket.
  static curl_socket_t OpenSocket(void* self, curlsocktype purpose,
                                  curl_sockaddr* address) noexcept;
  static int CloseSocket(void* self, curl_socket_t socket) noexcept;

  std::mutex mutex_;  // Guards the two below: no socket is closed while ShutDown looks at it.
  std::vector<curl_socket_t> open_;
  bool is_shut_ = false;
  std::unique_ptr<CURL, Close> handle_;  // Its end closes sockets, so it goes first.
};

}  // namespace ckptfs::http
