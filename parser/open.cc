#include "parser/open.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "parser/base/cancellation.h"
#include "parser/base/error.h"
#include "parser/scheme.h"

namespace ckptfs {
namespace {

constexpr std::string_view kAfterScheme = "://";

// Not std::isalnum, which depends on the locale.
bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsOfScheme(char c) {
  return IsLetter(c) || (c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.';
}

const Scheme& SchemeOf(std::string_view uri) {
  const std::string_view given = SchemeNameOf(uri);
  const std::string_view name = given.empty() ? "file" : given;
  std::string known;
  for (const Scheme* scheme : Schemes()) {
    if (std::ranges::count(scheme->names, name) != 0) return *scheme;
    for (const std::string_view other : scheme->names) {
      known += fmt::format("{}{}", known.empty() ? "" : ", ", other);
    }
  }
  Fail(ENOTSUP, "unsupported URI scheme {} (supported: {}; a file of that name is ./{})",
       Quoted(name), known, Redacted(uri));
}

bool IsPort(std::string_view text) {
  uint16_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

// Returns the length of "user:password@" after "scheme://". A password should not contain '/', '?'
// or '#', but if it does, it must be redacted, too. The '@' may be percent-encoded by mistake. Only
// paths of web servers may contain '@' after a port: a bucket has no port, and redis/uri.h rejects
// it.
size_t UserLength(std::string_view scheme, std::string_view rest) {
  const std::string_view authority = rest.substr(0, rest.find_first_of("/?#"));
  const size_t colon = authority.find(':');
  const std::string_view port = authority.substr(std::min(authority.size(), colon + 1));
  const bool is_web = scheme == "http" || scheme == "https";
  const bool has_port =
      !authority.empty() && (colon == std::string_view::npos || authority.starts_with('[') ||
                             (is_web && colon > 0 && IsPort(port)));
  constexpr std::string_view kEncodedAt = "%40";
  const size_t at = (has_port ? authority : rest).rfind('@');
  const size_t encoded_at = authority.rfind(kEncodedAt);
  return std::max(at == std::string_view::npos ? 0 : at + 1,
                  encoded_at == std::string_view::npos ? 0 : encoded_at + kEncodedAt.size());
}

}  // namespace

std::string_view SchemeNameOf(std::string_view uri) {
  const size_t end = uri.find(kAfterScheme);
  if (end == std::string_view::npos || end == 0 || !IsLetter(uri[0])) return {};
  const std::string_view name = uri.substr(0, end);
  return std::ranges::all_of(name, IsOfScheme) ? name : std::string_view();
}

std::string Redacted(std::string_view uri) {
  const std::string_view scheme = SchemeNameOf(uri);
  if (scheme.empty()) return std::string(uri);
  std::string_view rest = uri.substr(scheme.size() + kAfterScheme.size());
  // A file URI has no query, and its authority should be empty.
  if (scheme == "file" && UserLength(scheme, rest.substr(0, rest.find('/'))) == 0)
    return std::string(uri);
  rest.remove_prefix(UserLength(scheme, rest));
  rest = rest.substr(0, rest.find_first_of("?#"));
  return fmt::format("{}{}{}", scheme, kAfterScheme, rest);
}

namespace {

// Opening may take many requests: redirects, credentials, pages of a listing. Each may take
// options.timeout, all of them together twice that; a download extends the limit by its progress.
Source OpenWithDeadline(const std::string& uri, SourceOptions options) {
  using Clock = std::chrono::steady_clock;
  constexpr uint64_t kSlowestDownload = 16 << 10;  // Bytes per second.
  const auto allowed = 2 * options.timeout;
  const Clock::time_point start = Clock::now();
  const auto downloaded = std::make_shared<std::atomic<uint64_t>>(0);
  options.progress = [downloaded, progress = std::move(options.progress)](uint64_t done,
                                                                          uint64_t total) {
    *downloaded = done;
    if (progress) progress(done, total);
  };
  const Cancellation::IsCancelled is_late = [&] {
    return Clock::now() - start > allowed + std::chrono::seconds(*downloaded / kSlowestDownload);
  };
  const Cancellation interruption(is_late);
  try {
    return SchemeOf(uri).open(uri, options);
  } catch (const Error& e) {
    if ((e.code() != ECANCELED && e.code() != EINTR) || !is_late()) throw;
    Fail(ETIMEDOUT, "opening timed out after {} s, twice the timeout", allowed.count());
  }
}

}  // namespace

Source OpenSource(const std::string& uri, const SourceOptions& options) try {
  return OpenWithDeadline(uri, options);
} catch (const Error& e) {
  throw WithContext(Redacted(uri), e);
}

}  // namespace ckptfs
