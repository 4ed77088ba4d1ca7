// What headers of answers say. Whoever answers may be anybody: all of it is checked.

#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string_view>

namespace ckptfs::http {

// Which bytes an answer brings: "bytes 0-99/1234". Of an answer that brings none because the range
// lies beyond the end, "bytes */1234", the length is 0.
struct ContentRange {
  uint64_t offset = 0;
  uint64_t length = 0;
  uint64_t total = 0;  // Of all bytes that there are; at most 2^63 - 1.
};

// Returns nothing for what is malformed, and where the total is not told.
std::optional<ContentRange> ParseContentRange(std::string_view text);

// A number of bytes; at most 2^63 - 1.
std::optional<uint64_t> ParseLength(std::string_view text);

// Seconds since 1970 of a date as HTTP writes it, "Sun, 06 Nov 1994 08:49:37 GMT".
std::optional<time_t> ParseDate(std::string_view text);

// How long to wait that a server asks for, which is a number of seconds or a date; `now` is the
// server's time. Not negative, and at most a day.
std::optional<std::chrono::seconds> ParseRetryAfter(std::string_view text, time_t now);

// Whether `text` is an entity tag that tells bytes apart: "\"33a64df5\"". A weak one, "W/\"0815\"",
// only tells meanings apart. Long ones are no tags for us.
bool IsStrongTag(std::string_view text);

}  // namespace ckptfs::http
