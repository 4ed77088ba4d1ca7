#include "parser/source/redis/uri.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <optional>

#include "parser/base/encoding.h"
#include "parser/base/error.h"
#include "parser/base/text.h"
#include "parser/base/user_settings.h"

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

}  // namespace ckptfs::redis
