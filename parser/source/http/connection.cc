#include "parser/source/http/connection.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "parser/base/error.h"

namespace ckptfs::http {

Connection::Connection(const Trust& trust, const std::string& user_agent)
    : handle_(LibCurl().easy_init()) {
  CURL* const handle = handle_.get();
  if (handle == nullptr) Fail(ENOMEM, "no memory for a connection");
  LibCurl().easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  // A look-up of a name that hangs must not hold up the end of the program.
  LibCurl().easy_setopt(handle, CURLOPT_QUICK_EXIT, 1L);
  LibCurl().easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  LibCurl().easy_setopt(handle, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  LibCurl().easy_setopt(handle, CURLOPT_FOLLOWLOCATION, 0L);
  LibCurl().easy_setopt(handle, CURLOPT_PATH_AS_IS, 1L);
  LibCurl().easy_setopt(handle, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  LibCurl().easy_setopt(handle, CURLOPT_BUFFERSIZE, 512L << 10U);
  LibCurl().easy_setopt(handle, CURLOPT_TCP_NODELAY, 1L);
  LibCurl().easy_setopt(handle, CURLOPT_TCP_KEEPALIVE, 1L);
  LibCurl().easy_setopt(handle, CURLOPT_USERAGENT, user_agent.c_str());
  if (!trust.file.empty()) LibCurl().easy_setopt(handle, CURLOPT_CAINFO, trust.file.c_str());
  if (!trust.directory.empty())
    LibCurl().easy_setopt(handle, CURLOPT_CAPATH, trust.directory.c_str());
  LibCurl().easy_setopt(handle, CURLOPT_OPENSOCKETFUNCTION, &OpenSocket);
  LibCurl().easy_setopt(handle, CURLOPT_OPENSOCKETDATA, this);
  LibCurl().easy_setopt(handle, CURLOPT_CLOSESOCKETFUNCTION, &CloseSocket);
  LibCurl().easy_setopt(handle, CURLOPT_CLOSESOCKETDATA, this);
}

Connection::~Connection() = default;

void Connection::ShutDown() {
  const std::scoped_lock lock(mutex_);
  is_shut_ = true;
  for (const curl_socket_t socket : open_) ::shutdown(socket, SHUT_RDWR);
}

curl_socket_t Connection::OpenSocket(void* self, curlsocktype /*purpose*/,
                                     curl_sockaddr* address) noexcept {
  auto& connection = *static_cast<Connection*>(self);
  const std::scoped_lock lock(connection.mutex_);
  if (connection.is_shut_) return CURL_SOCKET_BAD;
  const curl_socket_t socket =
      ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
  if (socket < 0) return CURL_SOCKET_BAD;
  try {
    connection.open_.push_back(socket);
  } catch (const std::bad_alloc&) {
    ::close(socket);
    return CURL_SOCKET_BAD;
  }
  return socket;
}

int Connection::CloseSocket(void* self, curl_socket_t socket) noexcept {
  auto& connection = *static_cast<Connection*>(self);
  const std::scoped_lock lock(connection.mutex_);
  std::erase(connection.open_, socket);
  return ::close(socket);
}

}  // namespace ckptfs::http
