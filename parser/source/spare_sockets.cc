#include "parser/source/spare_sockets.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace ckptfs {
namespace {

using std::chrono::milliseconds;

// Servers close connections on which no request arrives, after ten seconds or more.
constexpr std::chrono::seconds kLifetime{5};

// Whether a connection is being established, or is and has no data: a server that sends data before
// a request reports a timeout.
bool IsUsable(int socket) {
  pollfd poll = {.fd = socket, .events = POLLIN, .revents = 0};
  return ::poll(&poll, 1, 0) == 0;
}

}  // namespace

void SpareSockets::Connect(int socket, size_t count, Clock::duration round_trip) {
  sockaddr_storage address = {};
  socklen_t length = sizeof address;
  auto* const peer = reinterpret_cast<sockaddr*>(&address);
  if (::getpeername(socket, peer, &length) != 0 || address.ss_family == AF_UNIX) return;
  const Clock::time_point now = Clock::now();
  const MutexLock lock(mutex_);
  for (size_t i = 0; i < count; ++i) {
    Fd begun(::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (begun.number() < 0) return;
    if (::connect(begun.number(), peer, length) != 0 && errno != EINPROGRESS) return;
    begun_.push_back({.spare = {.socket = std::move(begun), .latest = now + 2 * round_trip},
                      .begin = now,
                      .address = address,
                      .length = length});
  }
}

SpareSockets::Spare SpareSockets::Take(const sockaddr* address, socklen_t length) {
  const MutexLock lock(mutex_);
  const Clock::time_point now = Clock::now();
  std::erase_if(begun_, [&](const Begun& begun) {
    return now - begun.begin > kLifetime || !IsUsable(begun.spare.socket.number());
  });
  const auto found = std::ranges::find_if(begun_, [&](const Begun& begun) {
    return begun.length == length && std::memcmp(&begun.address, address, length) == 0;
  });
  if (found == begun_.end()) return {};
  Spare spare = std::move(found->spare);
  begun_.erase(found);
  return spare;
}

void SpareSockets::Clear() {
  const MutexLock lock(mutex_);
  begun_.clear();
}

size_t SpareSockets::count() const {
  const MutexLock lock(mutex_);
  return begun_.size();
}

bool AwaitConnected(int socket, SpareSockets::Clock::time_point latest) {
  pollfd poll = {.fd = socket, .events = POLLOUT, .revents = 0};
  const auto left = std::chrono::ceil<milliseconds>(latest - SpareSockets::Clock::now());
  const int ready =
      ::poll(&poll, 1, static_cast<int>(std::max(left.count(), milliseconds::rep{0})));
  return ready == 1 && (poll.revents & (POLLERR | POLLHUP)) == 0;
}

}  // namespace ckptfs
