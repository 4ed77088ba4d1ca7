// Addresses of the web.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ckptfs::http {

// Parsed as libcurl does it, so that what is checked is where it goes.
struct Url {
  std::string text;    // As it goes over the wire: without user information and fragment.
  std::string scheme;  // "http" or "https".
  std::string host;    // In lower case; an IPv6 address in brackets.
  std::string port;    // In digits, the usual one too.
  std::string path;    // Percent-encoded; begins with '/'.

  // What was in it, decoded. It may be empty, and so may the password.
  bool has_user = false;
  std::string user;
  std::string password;

  // Whom it leads to, "https://host:443": credentials for one are for no other.
  std::string Origin() const { return scheme + "://" + host + ":" + port; }

  // Whether what is sent to it cannot be read on the way: it is encrypted, or stays on this
  // machine.
  bool IsPrivate() const;
};

// Whether `host` is "localhost", in whatever case.
bool IsLocalhost(std::string_view host);

// Whether `host` is this machine: "localhost" or an address of its own, with or without brackets.
bool IsLoopback(std::string_view host);

// Whether a proxy must not see requests for `host`, which is as in Url: it is this machine, or one
// of the addresses at which clouds hand out credentials.
bool IsNeverProxied(const std::string& host);

// Throws Error(EINVAL) if `text` is no URL of these schemes; the message does not show it.
Url ParseUrl(const std::string& text);

// Returns `url` as messages show it: without its query.
std::string Shown(const Url& url);

}  // namespace ckptfs::http
