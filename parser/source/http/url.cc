#include "parser/source/http/url.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <memory>
#include <new>

#include "parser/error.h"

namespace ckptfs::http {
namespace {

struct Free {
  void operator()(CURLU* url) const noexcept { curl_url_cleanup(url); }
  void operator()(char* text) const noexcept { curl_free(text); }
};

// Returns nothing where there is no such part.
std::string Part(CURLU* url, CURLUPart which, unsigned int flags = 0) {
  char* part = nullptr;
  if (curl_url_get(url, which, &part, flags) != CURLUE_OK) return {};
  const std::unique_ptr<char, Free> owned(part);
  return part;
}

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

bool Url::IsPrivate() const {
  const bool is_loopback_number =
      host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string::npos;
  return scheme == "https" || host == "localhost" || host == "[::1]" || is_loopback_number;
}

Url ParseUrl(const std::string& text) {
  // libcurl would take what follows for a host.
  if (text.find(":///") != std::string::npos && text.find(":///") == text.find(':')) {
    Fail(EINVAL, "the URL names no host");
  }
  const std::unique_ptr<CURLU, Free> url(curl_url());
  if (!url) throw std::bad_alloc();
  const CURLUcode code =
      curl_url_set(url.get(), CURLUPART_URL, text.c_str(), CURLU_PATH_AS_IS | CURLU_URLENCODE);
  if (code != CURLUE_OK) Fail(EINVAL, "the URL is malformed: {}", curl_url_strerror(code));
  char* user = nullptr;
  Url parsed;
  parsed.has_user = curl_url_get(url.get(), CURLUPART_USER, &user, 0) == CURLUE_OK;
  curl_free(user);
  parsed.user = Part(url.get(), CURLUPART_USER, CURLU_URLDECODE);
  parsed.password = Part(url.get(), CURLUPART_PASSWORD, CURLU_URLDECODE);
  for (const CURLUPart part : {CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_FRAGMENT}) {
    curl_url_set(url.get(), part, nullptr, 0);
  }
  parsed.text = Part(url.get(), CURLUPART_URL);
  parsed.scheme = Part(url.get(), CURLUPART_SCHEME);
  parsed.host = Part(url.get(), CURLUPART_HOST);
  std::ranges::transform(parsed.host, parsed.host.begin(), Lower);
  parsed.port = Part(url.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT);
  parsed.path = Part(url.get(), CURLUPART_PATH);
  if (parsed.scheme != "http" && parsed.scheme != "https") {
    Fail(EINVAL, "the URL is neither of http nor of https");
  }
  if (parsed.text.empty() || parsed.host.empty()) Fail(EINVAL, "the URL names no host");
  return parsed;
}

std::string Shown(const Url& url) { return url.text.substr(0, url.text.find('?')); }

std::string PercentEncoded(std::string_view name) {
  std::string encoded;
  for (const char c : name) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' || c == '~';
    if (is_plain) {
      encoded += c;
    } else {
      encoded += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return encoded;
}

std::string PercentDecoded(std::string_view text) {
  std::string decoded;
  while (!text.empty()) {
    unsigned char byte = 0;
    const char* const digits = text.data() + 1;
    if (text.size() >= 3 && text.front() == '%' &&
        std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      decoded += static_cast<char>(byte);
      text.remove_prefix(3);
    } else {
      decoded += text.front();
      text.remove_prefix(1);
    }
  }
  return decoded;
}

}  // namespace ckptfs::http
