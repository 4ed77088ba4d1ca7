#include "parser/source/http/headers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "parser/base/error.h"
#include "parser/base/text.h"
#include "parser/source/curl.h"
#include "parser/source/retry_policy.h"

namespace ckptfs::http {
namespace {

bool Take(std::string_view& text, std::string_view expected) {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(expected.size());
  return true;
}

// Takes the digits that `text` begins with.
std::optional<uint64_t> TakeLength(std::string_view& text) {
  const size_t size = std::min(text.find_first_not_of("0123456789"), text.size());
  const auto number = ParseLength(text.substr(0, size));
  text.remove_prefix(size);
  return number;
}

// Returns the value of a validator. It is kept as long as the mount: one that is longer than any
// real server's counts as missing.
std::string_view FindValidator(const Response& response, std::string_view header) {
  constexpr size_t kLongest = 1000;
  const std::string_view value = response.Find(header);
  return value.size() <= kLongest ? value : std::string_view();
}

// A response without a tag may be of any version.
bool IsOf(const Version& version, const Response& response) {
  if (FindValidator(response, "etag") != version.tag) return false;
  return IsStrongTag(version.tag) ||
         FindValidator(response, "last-modified") == version.last_modified;
}

}  // namespace

std::optional<ContentRange> ParseContentRange(std::string_view text) {
  constexpr std::string_view kUnit = "bytes ";
  if (ToLower(text.substr(0, kUnit.size())) != kUnit) return std::nullopt;
  text.remove_prefix(kUnit.size());
  if (Take(text, "*/")) {
    const auto total = ParseLength(text);
    if (!total) return std::nullopt;
    return ContentRange{.offset = 0, .length = 0, .total = *total};
  }
  const auto first = TakeLength(text);
  if (!first || !Take(text, "-")) return std::nullopt;
  const auto last = TakeLength(text);
  if (!last || !Take(text, "/")) return std::nullopt;
  const auto total = ParseLength(text);
  if (!total || *first > *last || *last >= *total) return std::nullopt;
  return ContentRange{.offset = *first, .length = *last - *first + 1, .total = *total};
}

std::optional<uint64_t> ParseLength(std::string_view text) {
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  const auto number = ParseNumber<uint64_t>(text);
  return number && *number <= kMost ? number : std::nullopt;
}

std::optional<time_t> ParseDate(std::string_view text) {
  constexpr size_t kLongest = 64;
  if (text.size() > kLongest) return std::nullopt;
  const time_t time = LibCurl().getdate(std::string(text).c_str(), nullptr);
  if (time < 0) return std::nullopt;
  return time;
}

std::optional<std::chrono::seconds> ParseRetryAfter(std::string_view text, time_t now) {
  constexpr std::chrono::seconds kLongest = std::chrono::hours(24);
  if (const auto seconds = ParseLength(text)) {
    return std::chrono::seconds(std::min(*seconds, static_cast<uint64_t>(kLongest.count())));
  }
  const auto date = ParseDate(text);
  if (!date) return std::nullopt;
  return std::clamp(std::chrono::seconds(*date > now ? *date - now : 0), std::chrono::seconds(0),
                    kLongest);
}

bool IsRedirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

void ThrowIfTransient(const Response& response) {
  constexpr int kNotImplemented = 501;
  constexpr int kHttpVersion = 505;
  const int status = response.status;
  const bool is_server_error = status >= 500 && status != kNotImplemented && status != kHttpVersion;
  const bool is_too_early = status == 408 || status == 425 || status == 429;
  if (!is_server_error && !is_too_early) return;
  const time_t now = ParseDate(response.Find("date")).value_or(std::time(nullptr));
  const auto wait = ParseRetryAfter(response.Find("retry-after"), now);
  throw TransientError(EREMOTEIO, fmt::format("server returned status {}", status),
                       wait.value_or(std::chrono::seconds(0)));
}

bool IsStrongTag(std::string_view text) {
  constexpr size_t kLongest = 1000;
  // That of a listing may contain line breaks, which would be further headers of a request.
  const auto is_control = [](char c) { return (c >= 0 && c < ' ') || c == '\x7f'; };
  return text.size() >= 2 && text.size() <= kLongest && text.starts_with('"') &&
         text.ends_with('"') && text.find('"', 1) == text.size() - 1 &&
         std::ranges::none_of(text, is_control);
}

std::string Version::Condition() const {
  // If-Match never matches a weak tag: ValidatePart compares those.
  if (IsStrongTag(tag)) return "If-Match: " + tag;
  if (!last_modified.empty()) return "If-Unmodified-Since: " + last_modified;
  return {};
}

Version ParseVersion(const Response& response, uint64_t size) {
  return {.size = size,
          .tag = std::string(FindValidator(response, "etag")),
          .last_modified = std::string(FindValidator(response, "last-modified"))};
}

void ValidateLengthHeaders(const Response& response) {
  for (const std::string_view name : {"content-length", "content-range"}) {
    const std::string_view first = response.Find(name);
    for (const auto& [other, value] : response.headers) {
      if (other != name || value == first) continue;
      throw InvalidResponse(
          fmt::format("conflicting headers {}: {} and {}", name, Quoted(first), Quoted(value)));
    }
  }
}

void ValidateEncoding(const Response& response) {
  const std::string_view encoding = response.Find("content-encoding");
  if (encoding.empty() || ToLower(encoding) == "identity") return;
  throw InvalidResponse(fmt::format("unexpected content encoding {}", Quoted(encoding)));
}

void ValidateVersion(const Response& response, const Version& version) {
  if (!IsOf(version, response)) FailChanged();
}

ContentRange ValidateContentRange(const Response& response, uint64_t offset, uint64_t length) {
  const std::string_view text = response.Find("content-range");
  if (text.empty()) {
    const bool has_several = ToLower(response.Find("content-type")).starts_with("multipart/");
    throw InvalidResponse(has_several ? "multipart response to a request for one range"
                                      : "partial response without a content range");
  }
  const auto part = ParseContentRange(text);
  if (!part || part->offset != offset || part->length == 0 || part->length > length) {
    throw InvalidResponse(fmt::format("unexpected content range (found {}, expected {})",
                                      Quoted(text), FormatRange({offset, length})));
  }
  const std::string_view body = response.Find("content-length");
  if (!body.empty() && ParseLength(body) != part->length) {
    throw InvalidResponse(fmt::format("unexpected content length (found {}, expected {})",
                                      Quoted(body), part->length));
  }
  return *part;
}

uint64_t ValidatePart(const Response& response, ByteRange range, const Version& version) {
  ValidateEncoding(response);
  const std::string_view content_range = response.Find("content-range");
  if (response.status == 200 && content_range.empty()) {
    throw InvalidResponse("server returned the whole file instead of a range");
  }
  // Another length with the same strong tag is an error of the server, not another version.
  const auto found = ParseContentRange(content_range);
  const bool is_as_long = found && found->total == version.size;
  if (found && !is_as_long && !IsStrongTag(version.tag)) FailChanged();
  const ContentRange part = ValidateContentRange(response, range.offset, range.length);
  if (!is_as_long) {
    throw InvalidResponse(fmt::format("unexpected length of the file (found {}, expected {})",
                                      part.total, version.size));
  }
  return part.length;
}

std::string FormatRange(ByteRange range) {
  return fmt::format("bytes {} to {}", range.offset, range.offset + range.length - 1);
}

std::string RangeHeader(ByteRange range) {
  return fmt::format("Range: bytes={}-{}", range.offset, range.offset + range.length - 1);
}

void FailChanged() { Fail(ESTALE, "object changed since it was opened"); }

}  // namespace ckptfs::http
