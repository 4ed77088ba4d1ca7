#include "parser/source/http/fields.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string>
#include <system_error>

#include "parser/source/curl.h"

namespace ckptfs::http {
namespace {

constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();

// Takes a number with nothing before it.
std::optional<uint64_t> TakeNumber(std::string_view& text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number > kMost) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

bool Take(std::string_view& text, std::string_view expected) {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(expected.size());
  return true;
}

}  // namespace

std::optional<ContentRange> ParseContentRange(std::string_view text) {
  if (!Take(text, "bytes ")) return std::nullopt;
  if (Take(text, "*/")) {
    const auto total = ParseLength(text);
    if (!total) return std::nullopt;
    return ContentRange{.offset = 0, .length = 0, .total = *total};
  }
  const auto first = TakeNumber(text);
  if (!first || !Take(text, "-")) return std::nullopt;
  const auto last = TakeNumber(text);
  if (!last || !Take(text, "/")) return std::nullopt;
  const auto total = ParseLength(text);
  if (!total || *first > *last || *last >= *total) return std::nullopt;
  return ContentRange{.offset = *first, .length = *last - *first + 1, .total = *total};
}

std::optional<uint64_t> ParseLength(std::string_view text) {
  const auto number = TakeNumber(text);
  return text.empty() ? number : std::nullopt;
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

bool IsStrongTag(std::string_view text) {
  constexpr size_t kLongest = 1000;
  return text.size() >= 2 && text.size() <= kLongest && text.starts_with('"') &&
         text.ends_with('"') && text.find('"', 1) == text.size() - 1;
}

}  // namespace ckptfs::http
