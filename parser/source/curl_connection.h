// A libcurl handle with its open connections, and what errors of libcurl mean.

#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/mutex.h"
#include "parser/source/curl.h"

namespace ckptfs {

// Certificates of authorities that are trusted. Empty: as libcurl was built.
struct TrustedCertificates {
  std::string file;       // A bundle of certificates.
  std::string directory;  // One certificate in each file.
};

// Addresses of hosts and TLS sessions that connections share, so that only the first connection to
// a host looks up its name and exchanges certificates. Thread-safe.
class CurlShare {
 public:
  // Throws Error(ENOMEM) if libcurl returns no handle.
  CurlShare();
  CurlShare(const CurlShare&) = delete;
  CurlShare& operator=(const CurlShare&) = delete;
  ~CurlShare() = default;

  CURLSH* handle() const { return handle_.get(); }

 private:
  struct Close {
    void operator()(CURLSH* handle) const noexcept { LibCurl().share_cleanup(handle); }
  };

  // Callbacks of libcurl.
  static void Lock(CURL* connection, curl_lock_data data, curl_lock_access access,
                   void* self) noexcept;
  static void Unlock(CURL* connection, curl_lock_data data, void* self) noexcept;

  std::array<std::mutex, CURL_LOCK_DATA_LAST> mutexes_;  // One for each kind of data.
  std::unique_ptr<CURLSH, Close> handle_;
};

// Belongs to one thread at a time, except for ShutDown.
class CurlConnection {
 public:
  // `share` must outlive this. All of its connections must trust the same certificates. Throws
  // Error(ENOMEM) if libcurl returns no handle.
  CurlConnection(const CurlShare& share, const TrustedCertificates& trust,
                 const std::string& user_agent);
  CurlConnection(const CurlConnection&) = delete;
  CurlConnection& operator=(const CurlConnection&) = delete;
  ~CurlConnection();

  CURL* handle() const { return handle_.get(); }

  // Shuts all sockets down and prevents new ones, so that a transfer ends at once. Callable from
  // any thread.
  void ShutDown();

 private:
  struct Close {
    void operator()(CURL* handle) const noexcept { LibCurl().easy_cleanup(handle); }
  };

  // Callbacks of libcurl.
  static curl_socket_t OpenSocket(void* self, curlsocktype purpose,
                                  curl_sockaddr* address) noexcept;
  static int CloseSocket(void* self, curl_socket_t socket) noexcept;

  Mutex mutex_;  // Held so that no socket is closed while ShutDown uses it.
  std::vector<curl_socket_t> open_ GUARDED_BY(mutex_);
  bool is_shut_ GUARDED_BY(mutex_) = false;
  std::unique_ptr<CURL, Close> handle_;  // Destroyed first: its destructor closes sockets.
};

// Returns the errno that a transfer on `handle` ended with; 0 if there is none.
int CurlErrno(CURL* handle);

// Whether a peer that resets the connection causes the errno `error`.
bool IsConnectionReset(int error);

// Throws the Error for a transfer on `handle` that ended with `code`: std::bad_alloc, EHOSTUNREACH
// (host or proxy not found), ECONNREFUSED, ETIMEDOUT (not connected within `connect_timeout`),
// EPROTO (TLS), EINVAL (malformed URL) or ECONNRESET (any other code). `details` is the text of
// libcurl's error buffer; it may be empty.
[[noreturn]] void ThrowCurlError(CURLcode code, CURL* handle, std::string_view details,
                                 std::chrono::milliseconds connect_timeout);

}  // namespace ckptfs
