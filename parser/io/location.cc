#include "parser/io/location.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "parser/base/text.h"

namespace ckptfs {
namespace {

constexpr std::string_view kAfterScheme = "://";

// Not std::isalnum, which depends on the locale.
bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsOfScheme(char c) {
  return IsLetter(c) || (c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.';
}

// Returns the length of "user:password@" after "scheme://". A password should not contain '/', '?'
// or '#', but if it does, it must be redacted, too. The '@' may be percent-encoded by mistake. Only
// paths of web servers may contain '@' after a port: a bucket has no port, and redis/connection.h
// rejects it.
size_t UserLength(std::string_view scheme, std::string_view rest) {
  const std::string_view authority = rest.substr(0, rest.find_first_of("/?#"));
  const size_t colon = authority.find(':');
  // On the hub, '@' precedes a revision, unless a user or a token is there by mistake.
  if (scheme == "hf" && colon == std::string_view::npos &&
      (!authority.starts_with("hf_") || authority.find('@') == std::string_view::npos)) {
    return 0;
  }
  const std::string_view port = authority.substr(std::min(authority.size(), colon + 1));
  const bool is_web = scheme == "http" || scheme == "https";
  const bool has_port =
      !authority.empty() && (colon == std::string_view::npos || authority.starts_with('[') ||
                             (is_web && colon > 0 && ParseNumber<uint16_t>(port)));
  constexpr std::string_view kEncodedAt = "%40";
  const size_t at = (has_port ? authority : rest).rfind('@');
  const size_t encoded_at = authority.rfind(kEncodedAt);
  return std::max(at == std::string_view::npos ? 0 : at + 1,
                  encoded_at == std::string_view::npos ? 0 : encoded_at + kEncodedAt.size());
}

}  // namespace

Location ParseLocation(std::string_view text) {
  Location location{.text = std::string(text), .scheme = "", .authority = "", .path = ""};
  location.scheme = SchemeNameOf(text);
  if (!location.scheme.empty()) {
    text.remove_prefix(location.scheme.size());
    location.text = fmt::format("{}{}", location.scheme, text);
    text.remove_prefix(kAfterScheme.size());
    location.authority = text.substr(0, text.find('/'));
    text.remove_prefix(location.authority.size());
  }
  location.path = text;
  return location;
}

std::string SchemeNameOf(std::string_view uri) {
  const size_t end = uri.find(kAfterScheme);
  if (end == std::string_view::npos || end == 0 || !IsLetter(uri[0])) return {};
  const std::string_view name = uri.substr(0, end);
  return std::ranges::all_of(name, IsOfScheme) ? ToLower(name) : "";
}

std::string Redacted(std::string_view uri) {
  const std::string scheme = SchemeNameOf(uri);
  if (scheme.empty()) return std::string(uri);
  std::string_view rest = uri.substr(scheme.size() + kAfterScheme.size());
  // A file URI has no query, and its authority should be empty.
  if (scheme == "file" && UserLength(scheme, rest.substr(0, rest.find('/'))) == 0) {
    return std::string(uri);
  }
  rest.remove_prefix(UserLength(scheme, rest));
  rest = rest.substr(0, rest.find_first_of("?#"));
  return fmt::format("{}{}{}", scheme, kAfterScheme, rest);
}

std::optional<std::string_view> TakeParameter(std::string_view& text, std::string_view name) {
  const size_t start = text.rfind(name);
  if (start == std::string_view::npos) return std::nullopt;
  const std::string_view value = text.substr(start + name.size());
  text = text.substr(0, start);
  return value;
}

}  // namespace ckptfs
