// libcurl: its functions, its connections, and what its errors mean.
//
// It is loaded when the first remote source is opened: it depends on some 30 libraries (TLS, LDAP,
// Kerberos, ...), which take half of the start-up time and of the memory of a mount of a local
// file.

#pragma once

#include <curl/curl.h>

#include <array>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/mutex.h"
#include "parser/source/spare_sockets.h"

namespace ckptfs {

// The functions of libcurl that are used, without the prefix "curl_".
struct Curl {
  decltype(&::curl_easy_cleanup) easy_cleanup = nullptr;
  decltype(&::curl_easy_getinfo) easy_getinfo = nullptr;
  decltype(&::curl_easy_init) easy_init = nullptr;
  decltype(&::curl_easy_perform) easy_perform = nullptr;
  decltype(&::curl_easy_recv) easy_recv = nullptr;
  decltype(&::curl_easy_send) easy_send = nullptr;
  decltype(&::curl_easy_setopt) easy_setopt = nullptr;
  decltype(&::curl_easy_strerror) easy_strerror = nullptr;
  decltype(&::curl_free) free = nullptr;
  decltype(&::curl_getdate) getdate = nullptr;
  decltype(&::curl_global_init) global_init = nullptr;
  decltype(&::curl_share_cleanup) share_cleanup = nullptr;
  decltype(&::curl_share_init) share_init = nullptr;
  decltype(&::curl_share_setopt) share_setopt = nullptr;
  decltype(&::curl_slist_append) slist_append = nullptr;
  decltype(&::curl_slist_free_all) slist_free_all = nullptr;
  decltype(&::curl_url) url = nullptr;
  decltype(&::curl_url_cleanup) url_cleanup = nullptr;
  decltype(&::curl_url_get) url_get = nullptr;
  decltype(&::curl_url_set) url_set = nullptr;
  decltype(&::curl_url_strerror) url_strerror = nullptr;
};

// Returns the functions. The first call loads and initialises libcurl for the lifetime of the
// process, and throws Error(ENOPKG) if that fails; the next call then tries again. Thread-safe.
const Curl& LibCurl();

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

  // Has this use connections of `spare`, which must outlive it, instead of new ones.
  void Use(SpareSockets& spare) { spare_ = &spare; }

  // Begins `count` connections to the same server in `spare`. To be called while this is connected,
  // by the thread that it belongs to.
  void ConnectMore(SpareSockets& spare, size_t count, SpareSockets::Clock::duration round_trip);

  // Returns how long the last transfer took to establish its TCP connection, without the time for
  // which this thread waited for a processor; 0 if there was a connection. To be called as
  // ConnectMore.
  std::chrono::microseconds Handshake();

  // Has the thread that receives be woken only when so many bytes have arrived, which must be on
  // their way. To be called while this is connected, by the thread that it belongs to.
  void SetLowWater(size_t bytes);

  // Whether a server has sent something since the last response ended: the rest of it, or a
  // response to no request, which would be taken for that to the next one.
  bool HasUnrequested();

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
  static int SetUpSocket(void* self, curl_socket_t socket, curlsocktype purpose) noexcept;

  bool Register(curl_socket_t socket) noexcept;
  curl_socket_t OpenSpare(const curl_sockaddr& address) noexcept;

  Mutex mutex_;  // Held so that no socket is closed while ShutDown uses it.
  std::vector<curl_socket_t> open_ GUARDED_BY(mutex_);
  bool is_shut_ GUARDED_BY(mutex_) = false;
  SpareSockets* spare_ = nullptr;
  curl_socket_t connected_ = CURL_SOCKET_BAD;  // The last one of spare_.
  std::unique_ptr<CURL, Close> handle_;        // Destroyed first: its destructor closes sockets.
};

// Throws the Error for a transfer on `handle` that ended with `code`: std::bad_alloc, EHOSTUNREACH
// (host or proxy not found), ECONNREFUSED, ETIMEDOUT (not connected within `connect_timeout`),
// EPROTO (TLS), EINVAL (malformed URL), InvalidResponse (not HTTP) or ECONNRESET (any other code).
// `details` is the text of libcurl's error buffer; it may be empty.
[[noreturn]] void ThrowCurlError(CURLcode code, CURL* handle, std::string_view details,
                                 std::chrono::milliseconds connect_timeout);

}  // namespace ckptfs
