#include "parser/source/http/url.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <new>
#include <span>

#include "parser/base/error.h"
#include "parser/base/text.h"
#include "parser/source/curl.h"

namespace ckptfs::http {
namespace {

struct Free {
  void operator()(CURLU* url) const noexcept { LibCurl().url_cleanup(url); }
  void operator()(char* text) const noexcept { LibCurl().free(text); }
};

// Returns a part of a URL; empty if it is missing.
std::string Part(CURLU* url, CURLUPart which, unsigned int flags = 0) {
  char* part = nullptr;
  if (LibCurl().url_get(url, which, &part, flags) != CURLUE_OK) return {};
  const std::unique_ptr<char, Free> owned(part);
  return part;
}

}  // namespace

bool IsLocalhost(std::string_view host) {
  return std::ranges::equal(host, std::string_view("localhost"), {},
                            [](char c) { return ToLower(c); });
}

bool IsLoopback(std::string_view host) {
  const bool is_number =
      host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string_view::npos;
  return is_number || host == "::1" || host == "[::1]" || IsLocalhost(host);
}

bool IsNeverProxied(const std::string& host) {
  constexpr std::array<std::string_view, 3> kMetadata = {"169.254.169.254", "169.254.170.2",
                                                         "169.254.170.23"};
  constexpr std::array<uint8_t, 4> kMetadataOfIpv6 = {0xfd, 0x00, 0x0e, 0xc2};  // Of 128 bits.
  if (IsLoopback(host) || std::ranges::find(kMetadata, host) != kMetadata.end()) return true;
  if (!host.starts_with('[')) return false;
  in6_addr address = {};
  if (::inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &address) != 1) return false;
  if (IN6_IS_ADDR_V4MAPPED(&address)) {
    const std::span bytes = std::span(address.s6_addr).last(4);
    return IsNeverProxied(fmt::format("{}.{}.{}.{}", bytes[0], bytes[1], bytes[2], bytes[3]));
  }
  return IN6_IS_ADDR_LOOPBACK(&address) ||
         std::ranges::equal(std::span(address.s6_addr).first(kMetadataOfIpv6.size()),
                            kMetadataOfIpv6);
}

bool Url::IsPrivate() const { return scheme == "https" || IsLoopback(host); }

Url ParseUrl(const std::string& text) {
  // libcurl would parse the path as a host.
  if (text.find(":///") != std::string::npos && text.find(":///") == text.find(':')) {
    Fail(EINVAL, "invalid URL: missing host");
  }
  const std::unique_ptr<CURLU, Free> url(LibCurl().url());
  if (!url) throw std::bad_alloc();
  // From 7.88 to 8.13 CURLU_URLENCODE implies CURLU_ALLOW_SPACE.
  const CURLUcode code = LibCurl().url_set(url.get(), CURLUPART_URL, text.c_str(),
                                           CURLU_PATH_AS_IS | CURLU_URLENCODE | CURLU_ALLOW_SPACE);
  if (code != CURLUE_OK) Fail(EINVAL, "malformed URL: {}", LibCurl().url_strerror(code));
  char* user = nullptr;
  Url parsed;
  parsed.has_user = LibCurl().url_get(url.get(), CURLUPART_USER, &user, 0) == CURLUE_OK;
  LibCurl().free(user);
  parsed.user = Part(url.get(), CURLUPART_USER, CURLU_URLDECODE);
  parsed.password = Part(url.get(), CURLUPART_PASSWORD, CURLU_URLDECODE);
  for (const CURLUPart part : {CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_FRAGMENT}) {
    LibCurl().url_set(url.get(), part, nullptr, 0);
  }
  parsed.text = Part(url.get(), CURLUPART_URL);
  parsed.scheme = Part(url.get(), CURLUPART_SCHEME);
  parsed.host = ToLower(Part(url.get(), CURLUPART_HOST));
  parsed.port = Part(url.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT);
  parsed.path = Part(url.get(), CURLUPART_PATH);
  if (parsed.scheme != "http" && parsed.scheme != "https") {
    Fail(EINVAL, "unsupported URL scheme (expected http or https)");
  }
  if (parsed.text.empty() || parsed.host.empty()) Fail(EINVAL, "invalid URL: missing host");
  return parsed;
}

std::string WithoutQuery(const Url& url) { return url.text.substr(0, url.text.find('?')); }

}  // namespace ckptfs::http
