#include "parser/source/redis/connection.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <optional>

#include "parser/base/cancellation.h"
#include "parser/base/encoding.h"
#include "parser/base/error.h"
#include "parser/base/text.h"
#include "parser/base/user_settings.h"
#include "parser/source/retry_policy.h"

namespace ckptfs::redis {
namespace {

Address ParseAddress(std::string_view text) {
  Address address;
  std::string_view port;
  if (text.starts_with('[')) {
    const size_t close = std::min(text.find(']'), text.size());
    address.host = text.substr(1, close - 1);
    port = text.substr(std::min(close + 1, text.size()));
  } else {
    const size_t colon = std::min(text.find(':'), text.size());
    address.host = text.substr(0, colon);
    port = text.substr(colon);
  }
  if (!IsHost(address.host)) Fail(EINVAL, "missing host");
  if (!port.empty() && port != ":") {
    const auto number = port[0] == ':' ? ParseNumber<uint16_t>(port.substr(1)) : std::nullopt;
    // Not in the message: it may be part of a password that contains a slash.
    if (!number || *number == 0) Fail(EINVAL, "invalid port");
    address.port = *number;
  }
  return address;
}

// "user:1234/5@host" may be a password with a slash, or a port and a key. No message may contain
// the former, so neither is assumed. `authority` precedes the slash.
void RequireNoSlashInPassword(std::string_view authority, std::string_view key) {
  if (authority.find_first_of("@[") == std::string_view::npos &&
      authority.find(':') != std::string_view::npos && key.find('@') != std::string_view::npos) {
    Fail(
        EINVAL,
        "ambiguous '@': write a slash of a password as %2F, and put another '@' before a host with "
        "a port if the key has one, as in redis://@host:6379/key@2");
  }
}

// Takes "?db=3" off the end of `key`, and returns its number.
uint64_t TakeDatabase(std::string_view& key) {
  const auto text = TakeParameter(key, "?db=");
  if (!text) return 0;
  const auto number = ParseNumber<uint64_t>(*text);
  if (!number) Fail(EINVAL, "invalid number of a database after ?db=");
  return *number;
}

}  // namespace

std::string ToString(const Address& address) {
  const bool is_ipv6 = address.host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", is_ipv6 ? "[" : "", address.host, is_ipv6 ? "]" : "",
                     address.port);
}

bool IsHost(std::string_view host) {
  constexpr size_t kLongest = 255;
  constexpr std::string_view kOthers = ".-_:";
  return !host.empty() && host.size() <= kLongest && std::ranges::all_of(host, [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           kOthers.find(c) != std::string_view::npos;
  });
}

std::string Target::name() const {
  return fmt::format("{}://{}/{}", is_tls ? "rediss" : "redis", ToString(server), key);
}

Target ParseUri(const Location& uri) {
  Target target;
  target.is_tls = uri.scheme == "rediss";
  std::string_view server = uri.authority;
  if (const size_t at = server.rfind('@'); at != std::string_view::npos) {
    const std::string_view login = server.substr(0, at);
    const size_t colon = std::min(login.find(':'), login.size());
    target.user = PercentDecode(login.substr(0, colon));
    target.password = PercentDecode(login.substr(std::min(colon + 1, login.size())));
    server.remove_prefix(at + 1);
  }
  target.server = ParseAddress(server);
  RequireNoSlashInPassword(uri.authority, uri.path);
  std::string_view key = uri.path;
  key.remove_prefix(std::min(key.find_first_not_of('/'), key.size()));
  target.database = TakeDatabase(key);
  if (key.find("?password=") != std::string_view::npos ||
      key.find("&password=") != std::string_view::npos) {
    Fail(EINVAL, "unsupported place of the password (expected redis://:PASSWORD@host/key)");
  }
  target.key = key;
  if (target.key.empty()) {
    Fail(EINVAL,
         "missing key (expected the key of a value after the host, or the prefix of a model of "
         "tensorizer)");
  }
  return target;
}

void FillFromEnvironment(Target& target) {
  if (target.user.empty()) target.user = GetEnvironment("CKPTFS_REDIS_USER");
  if (target.password.empty()) target.password = GetEnvironment("CKPTFS_REDIS_PASSWORD");
  if (target.password.empty()) target.password = GetEnvironment("REDISCLI_AUTH");
  if (target.password.empty() && !target.user.empty()) {
    Fail(EACCES, "missing password of the user: set CKPTFS_REDIS_PASSWORD");
  }
}

namespace {

using Kind = resp::Head::Kind;
using std::chrono::milliseconds;

milliseconds Until(std::chrono::steady_clock::time_point then) {
  return std::chrono::ceil<milliseconds>(then - std::chrono::steady_clock::now());
}

std::string EncodeCommand(std::initializer_list<std::string_view> words) {
  std::string command;
  resp::AppendCommand(words, command);
  return command;
}

bool BeginsWithAny(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::ranges::any_of(words, [&](std::string_view word) { return text.starts_with(word); });
}

std::string FormatError(std::string_view text) {
  if (text.ends_with('.')) text.remove_suffix(1);
  constexpr size_t kLongest = 300;
  return fmt::format("server returned error: {}", text.substr(0, kLongest));
}

}  // namespace

std::string EncodeStrlen(std::string_view key) { return EncodeCommand({"STRLEN", key}); }

std::string EncodeGetRange(std::string_view key, uint64_t offset, uint64_t length) {
  return EncodeCommand(
      {"GETRANGE", key, std::to_string(offset), std::to_string(offset + length - 1)});
}

void ThrowIfError(const resp::Head& head) {
  if (head.kind != Kind::kError) return;
  const std::string_view text = head.text;
  if (BeginsWithAny(text, {"LOADING ", "TRYAGAIN ", "BUSY ", "CLUSTERDOWN ", "MASTERDOWN ",
                           "ERR max number of clients"})) {
    throw TransientError(EREMOTEIO, FormatError(text));
  }
  if (BeginsWithAny(text, {"NOAUTH ", "WRONGPASS ", "NOPERM ", "DENIED "})) {
    throw Error(EACCES, FormatError(text));
  }
  throw Error(text.starts_with("WRONGTYPE ") ? EINVAL : EREMOTEIO, FormatError(text));
}

uint64_t ParseLengthReply(const resp::Head& head) {
  ThrowIfError(head);
  if (head.kind != Kind::kNumber || head.number < 0) Fail(EPROTO, "unexpected reply to STRLEN");
  return static_cast<uint64_t>(head.number);
}

uint64_t ParseRangeReply(const resp::Head& head, uint64_t most) {
  ThrowIfError(head);
  if (head.kind != Kind::kValue || static_cast<uint64_t>(head.number) > most) {
    Fail(EPROTO, "unexpected reply to GETRANGE");
  }
  return static_cast<uint64_t>(head.number);
}

Connection::Connection(const Address& server, const Target& target, const CurlShare& share,
                       const TrustedCertificates& trust, Limits limits, const std::stop_token& stop)
    : curl_(share, trust, ""), limits_(limits), changed_(Clock::now()) {
  CURL* const handle = curl_.handle();
  const std::string url =
      fmt::format("{}://{}/", target.is_tls ? "https" : "http", ToString(server));
  const milliseconds timeout =
      std::max(milliseconds(1), std::min(limits.connect, Until(limits.deadline)));
  std::array<char, CURL_ERROR_SIZE> details = {};
  LibCurl().easy_setopt(handle, CURLOPT_ERRORBUFFER, details.data());
  LibCurl().easy_setopt(handle, CURLOPT_URL, url.c_str());
  LibCurl().easy_setopt(handle, CURLOPT_CONNECT_ONLY, 1L);
  LibCurl().easy_setopt(handle, CURLOPT_PROXY, "");
  LibCurl().easy_setopt(handle, CURLOPT_SSL_ENABLE_ALPN, 0L);
  LibCurl().easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(timeout.count()));
  const std::stop_callback end(stop, [this] { ShutDown(); });
  const CURLcode code = LibCurl().easy_perform(handle);
  LibCurl().easy_setopt(handle, CURLOPT_ERRORBUFFER, nullptr);
  if (code != CURLE_OK) ThrowCurlError(code, handle, details.data(), limits.connect);
  if (LibCurl().easy_getinfo(handle, CURLINFO_ACTIVESOCKET, &socket_) != CURLE_OK ||
      socket_ == CURL_SOCKET_BAD) {
    Fail(ECONNRESET, "connection closed by the server");
  }
  LogIn(target);
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
    // A server that does not know AUTH repeats its arguments in the error.
    if (head.text.find(target.password) != std::string_view::npos) {
      Fail(EACCES, "authentication failed");
    }
    if (head.kind == resp::Head::Kind::kError && head.text.starts_with("ERR AUTH")) {
      Fail(EACCES, "authentication failed: the server requires no password for the default user");
    }
    ThrowIfError(head);
  }
  if (target.database != 0) ThrowIfError(ReadHead());
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
    Fail(ETIMEDOUT, "no data received for {:.3g} s",
         std::chrono::duration<double>(limits_.stall).count());
  }
  if (left <= milliseconds(0)) Fail(ETIMEDOUT, "request timed out");
  if (Cancellation::IsRequested()) Fail(ECANCELED, "request cancelled");
  constexpr milliseconds kPollInterval(200);
  pollfd waiting = {.fd = socket_, .events = events, .revents = 0};
  ::poll(&waiting, 1, static_cast<int>(std::min({stall, left, kPollInterval}).count()));
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
      Fail(ECONNRESET, "connection closed by the server");
    } else {
      // Checked here, too: Wait is not called while data arrives without a pause.
      changed_ = Clock::now();
      if (changed_ > limits_.deadline) Fail(ETIMEDOUT, "request timed out");
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
  static_assert(sizeof buffer_ > resp::kLongestLine, "a whole line must fit");
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
  // Large values are received without a copy; small ones many at a time.
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
    Fail(EPROTO, "value longer than its announced length");
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
