#include "parser/source/redis/connection.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "parser/base/cancellation.h"
#include "parser/base/error.h"
#include "parser/source/redis/answers.h"

namespace ckptfs::redis {
namespace {

using std::chrono::milliseconds;

milliseconds Until(std::chrono::steady_clock::time_point then) {
  return std::chrono::ceil<milliseconds>(then - std::chrono::steady_clock::now());
}

}  // namespace

Connection::Connection(const Address& server, const Target& target, const http::Trust& trust,
                       Limits limits, const std::stop_token& stop)
    : curl_(trust, ""), limits_(limits), changed_(Clock::now()) {
  CURL* const handle = curl_.handle();
  const std::string url = fmt::format("{}://{}/", target.is_tls ? "https" : "http", Shown(server));
  const milliseconds patience =
      std::max(milliseconds(1), std::min(limits.stall, Until(limits.deadline)));
  std::array<char, CURL_ERROR_SIZE> details = {};
  LibCurl().easy_setopt(handle, CURLOPT_ERRORBUFFER, details.data());
  LibCurl().easy_setopt(handle, CURLOPT_URL, url.c_str());
  LibCurl().easy_setopt(handle, CURLOPT_CONNECT_ONLY, 1L);
  LibCurl().easy_setopt(handle, CURLOPT_PROXY, "");
  LibCurl().easy_setopt(handle, CURLOPT_SSL_ENABLE_ALPN, 0L);
  LibCurl().easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(patience.count()));
  const std::stop_callback end(stop, [this] { ShutDown(); });
  const CURLcode code = LibCurl().easy_perform(handle);
  LibCurl().easy_setopt(handle, CURLOPT_ERRORBUFFER, nullptr);
  if (code != CURLE_OK) FailToConnect(code, details.data());
  if (LibCurl().easy_getinfo(handle, CURLINFO_ACTIVESOCKET, &socket_) != CURLE_OK ||
      socket_ == CURL_SOCKET_BAD) {
    Fail(ECONNRESET, "the server closes the connection");
  }
  LogIn(target);
}

void Connection::FailToConnect(CURLcode code, const char* details) const {
  long system_error = 0;
  LibCurl().easy_getinfo(curl_.handle(), CURLINFO_OS_ERRNO, &system_error);
  const int error = static_cast<int>(system_error);
  const std::string_view said = details[0] != '\0' ? details : LibCurl().easy_strerror(code);
  switch (code) {
    case CURLE_OUT_OF_MEMORY:
      throw std::bad_alloc();
    case CURLE_COULDNT_RESOLVE_HOST:
      Fail(EHOSTUNREACH, "the name of the host cannot be found");
    case CURLE_COULDNT_CONNECT:
      if (error == ETIMEDOUT) Fail(ETIMEDOUT, "cannot connect: {}", ErrnoText(error));
      Fail(ECONNREFUSED, "cannot connect: {}", error == 0 ? said : ErrnoText(error));
    case CURLE_OPERATION_TIMEDOUT:
      Fail(ETIMEDOUT, "the server does not let us connect in {:.3g} s",
           std::chrono::duration<double>(limits_.stall).count());
    case CURLE_SSL_CACERT_BADFILE:
      Fail(EPROTO, "the file with certificates cannot be used: {}", said);
    case CURLE_PEER_FAILED_VERIFICATION:
      Fail(EPROTO, "the server's certificate is not to be trusted: {}", said);
    case CURLE_SSL_CONNECT_ERROR:
      if (error == ECONNRESET) Fail(ECONNRESET, "connection reset");
      Fail(EPROTO, "there is no secure connection: {}", said);
    default:
      Fail(ECONNRESET, "{}", said);
  }
}

void Connection::LogIn(const Target& target) {
  std::string commands;
  const bool has_password = !target.password.empty();
  if (has_password && target.user.empty()) {
    resp::AppendCommand({"AUTH", target.password}, commands);
  } else if (has_password) {
    resp::AppendCommand({"AUTH", target.user, target.password}, commands);
  }
  if (target.database != 0) {
    resp::AppendCommand({"SELECT", std::to_string(target.database)}, commands);
  }
  if (commands.empty()) return;
  Send(commands);
  if (has_password) {
    const resp::Head head = ReadHead();
    // A server that does not know the command repeats what follows it.
    if (head.text.find(target.password) != std::string_view::npos) {
      Fail(EACCES, "the server does not take the password");
    }
    if (head.kind == resp::Head::Kind::kError && head.text.starts_with("ERR AUTH")) {
      Fail(EACCES, "there is a password, but the server wants none of the default user");
    }
    RequireNoError(head);
  }
  if (target.database != 0) RequireNoError(ReadHead());
}

void Connection::SetLimits(Limits limits) {
  limits_ = limits;
  changed_ = Clock::now();
}

bool Connection::is_idle() const {
  char byte = 0;
  const ssize_t n = ::recv(socket_, &byte, sizeof byte, MSG_PEEK | MSG_DONTWAIT);
  return begin_ == end_ && n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

void Connection::Wait(short events) {
  const milliseconds stall = Until(changed_ + limits_.stall);
  const milliseconds left = Until(limits_.deadline);
  if (stall <= milliseconds(0)) {
    Fail(ETIMEDOUT, "the server is silent for {:.3g} s",
         std::chrono::duration<double>(limits_.stall).count());
  }
  if (left <= milliseconds(0)) Fail(ETIMEDOUT, "the server takes too long");
  if (Cancellation::IsRequested()) Fail(ECANCELED, "the request was given up");
  constexpr milliseconds kLook(200);
  pollfd waiting = {.fd = socket_, .events = events, .revents = 0};
  ::poll(&waiting, 1, static_cast<int>(std::min({stall, left, kLook}).count()));
}

void Connection::Send(std::string_view commands) {
  while (!commands.empty()) {
    size_t sent = 0;
    const CURLcode code =
        LibCurl().easy_send(curl_.handle(), commands.data(), commands.size(), &sent);
    if (code == CURLE_AGAIN || (code == CURLE_OK && sent == 0)) {
      Wait(POLLOUT);
    } else if (code == CURLE_OK) {
      changed_ = Clock::now();
      commands.remove_prefix(sent);
    } else {
      Fail(ECONNRESET, "connection reset");
    }
  }
}

size_t Connection::Receive(std::span<std::byte> room) {
  while (true) {
    size_t received = 0;
    const CURLcode code = LibCurl().easy_recv(curl_.handle(), room.data(), room.size(), &received);
    if (code == CURLE_AGAIN) {
      Wait(POLLIN);
    } else if (code != CURLE_OK) {
      Fail(ECONNRESET, "connection reset");
    } else if (received == 0) {
      Fail(ECONNRESET, "the server closes the connection");
    } else {
      // Checked here, too: a server that never pauses is never waited for.
      changed_ = Clock::now();
      if (changed_ > limits_.deadline) Fail(ETIMEDOUT, "the server takes too long");
      return received;
    }
  }
}

void Connection::Fill() {
  if (begin_ == end_) begin_ = end_ = 0;
  if (end_ == buffer_.size()) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  end_ += Receive(std::span(buffer_).subspan(end_));
}

resp::Head Connection::ReadHead() {
  static_assert(sizeof buffer_ > resp::kLongestLine, "else there may be no room for the next byte");
  while (true) {
    const std::string_view unread(reinterpret_cast<const char*>(buffer_.data()) + begin_,
                                  end_ - begin_);
    if (const auto head = resp::ReadHead(unread)) {
      begin_ += head->size;
      return *head;
    }
    Fill();
  }
}

size_t Connection::Read(std::span<std::byte> room) {
  // Large values go where they belong at once; small ones come many at a time.
  if (begin_ == end_ && room.size() >= buffer_.size()) return Receive(room);
  if (begin_ == end_) Fill();
  const size_t count = std::min(room.size(), end_ - begin_);
  std::memcpy(room.data(), buffer_.data() + begin_, count);
  begin_ += count;
  return count;
}

void Connection::ReadEnd() {
  std::array<std::byte, resp::kEnd.size()> end = {};
  for (std::span<std::byte> room = end; !room.empty();) room = room.subspan(Read(room));
  if (!std::ranges::equal(end, std::as_bytes(std::span(resp::kEnd)))) {
    Fail(EPROTO, "the server sends more bytes of a value than it has said");
  }
}

void Connection::Skip(const resp::Head& head) {
  if (head.kind != resp::Head::Kind::kValue) return;
  std::array<std::byte, sizeof buffer_> bytes = {};
  for (auto left = static_cast<uint64_t>(head.number); left > 0;) {
    left -= Read(std::span(bytes).first(std::min<uint64_t>(left, bytes.size())));
  }
  ReadEnd();
}

}  // namespace ckptfs::redis
