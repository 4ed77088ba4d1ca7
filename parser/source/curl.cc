#include "parser/source/curl.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <new>
#include <utility>

#include "parser/base/error.h"
#include "parser/base/text.h"
#include "parser/source/retry_policy.h"

namespace ckptfs {
namespace {

constexpr const char* kLibrary = "libcurl.so.4";

std::once_flag loaded;
Curl functions;

template <typename Function>
void Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function == nullptr) Fail(ENOPKG, "{}: function {} not found", kLibrary, name);
}

void Load() {
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    Fail(ENOPKG, "cannot load libcurl, which remote checkpoints need: {}", ::dlerror());
  }
  Curl found;
  Find(library, "curl_easy_cleanup", found.easy_cleanup);
  Find(library, "curl_easy_getinfo", found.easy_getinfo);
  Find(library, "curl_easy_init", found.easy_init);
  Find(library, "curl_easy_perform", found.easy_perform);
  Find(library, "curl_easy_recv", found.easy_recv);
  Find(library, "curl_easy_send", found.easy_send);
  Find(library, "curl_easy_setopt", found.easy_setopt);
  Find(library, "curl_easy_strerror", found.easy_strerror);
  Find(library, "curl_free", found.free);
  Find(library, "curl_getdate", found.getdate);
  Find(library, "curl_global_init", found.global_init);
  Find(library, "curl_share_cleanup", found.share_cleanup);
  Find(library, "curl_share_init", found.share_init);
  Find(library, "curl_share_setopt", found.share_setopt);
  Find(library, "curl_slist_append", found.slist_append);
  Find(library, "curl_slist_free_all", found.slist_free_all);
  Find(library, "curl_url", found.url);
  Find(library, "curl_url_cleanup", found.url_cleanup);
  Find(library, "curl_url_get", found.url_get);
  Find(library, "curl_url_set", found.url_set);
  Find(library, "curl_url_strerror", found.url_strerror);
  found.global_init(CURL_GLOBAL_DEFAULT);
  functions = found;
}

}  // namespace

const Curl& LibCurl() {
  std::call_once(loaded, Load);
  return functions;
}

namespace {

// Seconds without data until a connection is probed. One that does not acknowledge data or probes
// for twice as long is reset.
constexpr long kProbeAfter = 5;

}  // namespace

CurlShare::CurlShare() : handle_(LibCurl().share_init()) {
  CURLSH* const handle = handle_.get();
  if (handle == nullptr) Fail(ENOMEM, "out of memory for shared addresses");
  LibCurl().share_setopt(handle, CURLSHOPT_LOCKFUNC, &Lock);
  LibCurl().share_setopt(handle, CURLSHOPT_UNLOCKFUNC, &Unlock);
  LibCurl().share_setopt(handle, CURLSHOPT_USERDATA, this);
  LibCurl().share_setopt(handle, CURLSHOPT_SHARE, CURL_LOCK_DATA_DNS);
  LibCurl().share_setopt(handle, CURLSHOPT_SHARE, CURL_LOCK_DATA_SSL_SESSION);
}

void CurlShare::Lock(CURL* /*connection*/, curl_lock_data data, curl_lock_access /*access*/,
                     void* self) noexcept {
  static_cast<CurlShare*>(self)->mutexes_.at(data).lock();
}

void CurlShare::Unlock(CURL* /*connection*/, curl_lock_data data, void* self) noexcept {
  static_cast<CurlShare*>(self)->mutexes_.at(data).unlock();
}

CurlConnection::CurlConnection(const CurlShare& share, const TrustedCertificates& trust,
                               const std::string& user_agent)
    : handle_(LibCurl().easy_init()) {
  CURL* const handle = handle_.get();
  if (handle == nullptr) Fail(ENOMEM, "out of memory for a connection");
  LibCurl().easy_setopt(handle, CURLOPT_SHARE, share.handle());
  LibCurl().easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  // A name look-up that hangs must not delay the end of the program.
  LibCurl().easy_setopt(handle, CURLOPT_QUICK_EXIT, 1L);
  LibCurl().easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  LibCurl().easy_setopt(handle, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  LibCurl().easy_setopt(handle, CURLOPT_FOLLOWLOCATION, 0L);
  LibCurl().easy_setopt(handle, CURLOPT_PATH_AS_IS, 1L);
  LibCurl().easy_setopt(handle, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  LibCurl().easy_setopt(handle, CURLOPT_BUFFERSIZE, 256L << 10U);
  LibCurl().easy_setopt(handle, CURLOPT_TCP_NODELAY, 1L);
  // A response may begin late, so a peer that vanished is detected by probes.
  LibCurl().easy_setopt(handle, CURLOPT_TCP_KEEPALIVE, 1L);
  LibCurl().easy_setopt(handle, CURLOPT_TCP_KEEPIDLE, kProbeAfter);
  LibCurl().easy_setopt(handle, CURLOPT_TCP_KEEPINTVL, kProbeAfter / 2);
  LibCurl().easy_setopt(handle, CURLOPT_USERAGENT, user_agent.c_str());
  if (!trust.file.empty()) LibCurl().easy_setopt(handle, CURLOPT_CAINFO, trust.file.c_str());
  if (!trust.directory.empty())
    LibCurl().easy_setopt(handle, CURLOPT_CAPATH, trust.directory.c_str());
  LibCurl().easy_setopt(handle, CURLOPT_OPENSOCKETFUNCTION, &OpenSocket);
  LibCurl().easy_setopt(handle, CURLOPT_OPENSOCKETDATA, this);
  LibCurl().easy_setopt(handle, CURLOPT_SOCKOPTFUNCTION, &SetUpSocket);
  LibCurl().easy_setopt(handle, CURLOPT_SOCKOPTDATA, this);
  LibCurl().easy_setopt(handle, CURLOPT_CLOSESOCKETFUNCTION, &CloseSocket);
  LibCurl().easy_setopt(handle, CURLOPT_CLOSESOCKETDATA, this);
}

CurlConnection::~CurlConnection() = default;

bool CurlConnection::HasUnrequested() {
  const MutexLock lock(mutex_);
  return std::ranges::any_of(open_, [](curl_socket_t socket) {
    char byte = 0;
    return ::recv(socket, &byte, sizeof byte, MSG_PEEK | MSG_DONTWAIT) > 0;
  });
}

void CurlConnection::ShutDown() {
  const MutexLock lock(mutex_);
  is_shut_ = true;
  for (const curl_socket_t socket : open_) ::shutdown(socket, SHUT_RDWR);
}

void CurlConnection::ConnectMore(SpareSockets& spare, size_t count,
                                 SpareSockets::Clock::duration round_trip) {
  const MutexLock lock(mutex_);
  if (!open_.empty()) spare.Connect(open_.back(), count, round_trip);
}

std::chrono::microseconds CurlConnection::Handshake() {
  curl_off_t begin = 0;
  curl_off_t end = 0;
  LibCurl().easy_getinfo(handle(), CURLINFO_NAMELOOKUP_TIME_T, &begin);
  LibCurl().easy_getinfo(handle(), CURLINFO_CONNECT_TIME_T, &end);
  const std::chrono::microseconds elapsed(end - begin);
  ::tcp_info info = {};
  socklen_t length = sizeof info;
  const MutexLock lock(mutex_);
  if (open_.empty() || ::getsockopt(open_.back(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0 ||
      info.tcpi_rtt == 0) {
    return elapsed;
  }
  return std::min(elapsed, std::chrono::microseconds(info.tcpi_rtt));  // As the kernel measured it.
}

void CurlConnection::SetLowWater(size_t bytes) {
  const auto value = static_cast<int>(bytes);
  const MutexLock lock(mutex_);
  if (open_.empty()) return;
  ::setsockopt(open_.back(), SOL_SOCKET, SO_RCVLOWAT, &value, sizeof value);
}

// Records a socket for ShutDown. Returns false if there can be none any more.
bool CurlConnection::Register(curl_socket_t socket) noexcept {
  const MutexLock lock(mutex_);
  if (is_shut_) return false;
  try {
    open_.push_back(socket);
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

// Returns a connected socket of spare_, or CURL_SOCKET_BAD.
curl_socket_t CurlConnection::OpenSpare(const curl_sockaddr& address) noexcept {
  SpareSockets::Spare spare = spare_->Take(&address.addr, address.addrlen);
  const curl_socket_t socket = spare.socket.Release();
  if (socket < 0) return CURL_SOCKET_BAD;
  const bool is_registered = Register(socket);
  if (is_registered && AwaitConnected(socket, spare.latest)) return connected_ = socket;
  CloseSocket(this, socket);
  return CURL_SOCKET_BAD;
}

curl_socket_t CurlConnection::OpenSocket(void* self, curlsocktype /*purpose*/,
                                         curl_sockaddr* address) noexcept {
  auto& connection = *static_cast<CurlConnection*>(self);
  curl_socket_t socket = CURL_SOCKET_BAD;
  if (connection.spare_ != nullptr) socket = connection.OpenSpare(*address);
  if (socket == CURL_SOCKET_BAD) {
    socket = ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    if (socket < 0) return CURL_SOCKET_BAD;
    if (!connection.Register(socket)) {
      ::close(socket);
      return CURL_SOCKET_BAD;
    }
  }
  if (address->family != AF_UNIX) {
    constexpr unsigned kMilliseconds = 2 * 1000 * static_cast<unsigned>(kProbeAfter);
    ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &kMilliseconds, sizeof kMilliseconds);
  }
  return socket;
}

int CurlConnection::SetUpSocket(void* self, curl_socket_t socket,
                                curlsocktype /*purpose*/) noexcept {
  auto& connected = static_cast<CurlConnection*>(self)->connected_;
  const bool is_connected = socket == std::exchange(connected, CURL_SOCKET_BAD);
  return is_connected ? CURL_SOCKOPT_ALREADY_CONNECTED : CURL_SOCKOPT_OK;
}

int CurlConnection::CloseSocket(void* self, curl_socket_t socket) noexcept {
  auto& connection = *static_cast<CurlConnection*>(self);
  const MutexLock lock(connection.mutex_);
  std::erase(connection.open_, socket);
  return ::close(socket);
}

namespace {

// Returns the errno that a transfer on `handle` ended with; 0 if there is none.
int CurlErrno(CURL* handle) {
  long error = 0;
  LibCurl().easy_getinfo(handle, CURLINFO_OS_ERRNO, &error);
  return static_cast<int>(error);
}

// Whether a peer that resets the connection causes the errno `error`.
bool IsConnectionReset(int error) {
  return error == ECONNRESET || error == EPIPE || error == ECONNABORTED;
}

// Returns the part of libcurl's message that describes the error. URLs in it, such as that of a
// proxy, may contain a password.
std::string Describe(CURLcode code, std::string_view details) {
  if (details.empty() || details.find("://") != std::string_view::npos) {
    details = LibCurl().easy_strerror(code);
  }
  for (const std::string_view prefix : {"SSL certificate problem: ", "SSL: "}) {
    if (details.starts_with(prefix)) details.remove_prefix(prefix.size());
  }
  // "error:0A00010B:SSL routines::wrong version number": only the end is for people.
  const size_t routines = details.rfind("::");
  if (routines != std::string_view::npos) details.remove_prefix(routines + 2);
  return std::string(Trim(details));
}

}  // namespace

void ThrowCurlError(CURLcode code, CURL* handle, std::string_view details,
                    std::chrono::milliseconds connect_timeout) {
  const int error = CurlErrno(handle);
  const std::string description = Describe(code, details);
  switch (code) {
    case CURLE_OUT_OF_MEMORY:
      throw std::bad_alloc();
    case CURLE_URL_MALFORMAT:
      Fail(EINVAL, "malformed URL");
    case CURLE_COULDNT_RESOLVE_PROXY:
      Fail(EHOSTUNREACH, "cannot resolve proxy");
    case CURLE_COULDNT_RESOLVE_HOST:
      Fail(EHOSTUNREACH, "cannot resolve host");
    case CURLE_COULDNT_CONNECT:
      if (error == ETIMEDOUT) Fail(ETIMEDOUT, "cannot connect: {}", ErrnoText(error));
      Fail(ECONNREFUSED, "cannot connect: {}", error == 0 ? description : ErrnoText(error));
    case CURLE_OPERATION_TIMEDOUT:
      Fail(ETIMEDOUT, "connection timed out after {:.3g} s",
           std::chrono::duration<double>(connect_timeout).count());
    case CURLE_SSL_CACERT_BADFILE:
      Fail(EPROTO, "cannot read the certificate file: {}", description);
    case CURLE_PEER_FAILED_VERIFICATION:
      Fail(EPROTO, "certificate verification failed: {} (see -o cacert=)", description);
    case CURLE_SSL_CONNECT_ERROR:
      if (IsConnectionReset(error)) Fail(ECONNRESET, "connection reset");
      if (details.find("SSL_ERROR_SYSCALL") != std::string_view::npos) {
        Fail(ECONNRESET, "connection closed during the TLS handshake");
      }
      Fail(EPROTO, "TLS handshake failed: {}", description);
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_ENGINE_INITFAILED:
    case CURLE_SSL_INVALIDCERTSTATUS:
    case CURLE_SSL_ISSUER_ERROR:
      Fail(EPROTO, "TLS handshake failed: {}", description);
    case CURLE_UNSUPPORTED_PROTOCOL:  // "Received HTTP/0.9 when not allowed".
    case CURLE_WEIRD_SERVER_REPLY:
      throw InvalidResponse(fmt::format("invalid response: {}", description));
    default:
      if (IsConnectionReset(error)) Fail(ECONNRESET, "connection reset");
      Fail(ECONNRESET, "{}", description);
  }
}

}  // namespace ckptfs
