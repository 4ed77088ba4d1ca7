// URLs of web servers.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ckptfs::http {

// Parsed by libcurl, so that checks apply to the server that libcurl connects to.
struct Url {
  std::string text;    // As in a request: without user information and fragment.
  std::string scheme;  // "http" or "https".
  std::string host;    // In lower case; an IPv6 address in brackets.
  std::string port;    // In digits, also if it is the default one.
  std::string path;    // Percent-encoded; begins with '/'.

  // User information, decoded. Both may be empty.
  bool has_user = false;
  std::string user;
  std::string password;

  // Returns the server, "https://host:443". Credentials are valid for one server only.
  std::string Origin() const { return scheme + "://" + host + ":" + port; }

  // Whether requests cannot be read on the way: they are encrypted, or stay on this machine.
  bool IsPrivate() const;
};

// Whether `host` is "localhost", in any case.
bool IsLocalhost(std::string_view host);

// Whether `host` is "localhost" or a loopback address, with or without brackets.
bool IsLoopback(std::string_view host);

// Whether requests for `host`, as in Url, must not be sent through a proxy: it is this machine, or
// an address of a cloud's metadata service.
bool IsNeverProxied(const std::string& host);

// Throws Error(EINVAL) if `text` is not a URL of these schemes. The message does not contain it.
Url ParseUrl(const std::string& text);

// Returns `url` for messages: without its query, which may be secret.
std::string WithoutQuery(const Url& url);

}  // namespace ckptfs::http
