// Headers of responses: ranges, dates, entity tags, and the version of an object that a response
// belongs to. Servers are not trusted: all values are validated.

#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>

#include "parser/io/byte_source.h"
#include "parser/source/http/client.h"

namespace ckptfs::http {

// The bytes in a response: "bytes 0-99/1234". For an unsatisfiable range, "bytes */1234", the
// length is 0.
struct ContentRange {
  uint64_t offset = 0;
  uint64_t length = 0;
  uint64_t total = 0;  // Bytes of the object; at most 2^63 - 1.
};

// Returns nothing if `text` is malformed or has no total.
std::optional<ContentRange> ParseContentRange(std::string_view text);

// Parses a number of bytes; at most 2^63 - 1.
std::optional<uint64_t> ParseLength(std::string_view text);

// Parses a date of HTTP, "Sun, 06 Nov 1994 08:49:37 GMT", into seconds since 1970.
std::optional<time_t> ParseDate(std::string_view text);

// Parses Retry-After, a number of seconds or a date. `now` is the server's time. The result is not
// negative, and at most a day.
std::optional<std::chrono::seconds> ParseRetryAfter(std::string_view text, time_t now);

// Whether `status` is a redirect with a Location.
bool IsRedirect(int status);

// Throws TransientError if the status of `response` means that a retry may succeed: 408, 425, 429,
// and 5xx except 501 and 505.
void ThrowIfTransient(const Response& response);

// Whether `text` is a strong entity tag: "\"33a64df5\"". A weak one, "W/\"0815\"", does not
// identify bytes. Tags of more than 1000 bytes or with control characters are treated as weak.
bool IsStrongTag(std::string_view text);

// The version of an object that was opened.
struct Version {
  uint64_t size = 0;

  // Headers ETag and Last-Modified, verbatim; empty if they are missing.
  std::string tag;
  std::string last_modified;

  // Returns the header that restricts a request to this version; empty if there is no validator.
  std::string Condition() const;
};

// Returns the version in the first response. `size` is that of the object.
Version ParseVersion(const Response& response, uint64_t size);

// Throws InvalidResponse if Content-Length or Content-Range, which say which bytes these are,
// occurs with several values.
void ValidateLengthHeaders(const Response& response);

// Throws InvalidResponse if the body of `response` has a content encoding, so that its bytes are
// not those of the object.
void ValidateEncoding(const Response& response);

// Checks by the validators of `response`, whose status is 200 or 206, that it belongs to `version`.
// Throws Error(ESTALE) if it does not.
void ValidateVersion(const Response& response, const Version& version);

// Checks that the Content-Range of `response`, which is requested from `offset` on and is to have
// at most `length` bytes, matches the other headers. Servers may send fewer bytes than were
// requested. Throws InvalidResponse.
ContentRange ValidateContentRange(const Response& response, uint64_t offset, uint64_t length);

// Checks that `response`, whose status is 200 or 206 and which belongs to `version`, contains bytes
// of `range` from its beginning on, by its Content-Range whatever the status. Returns their number.
// Throws InvalidResponse if it contains other bytes, Error(ESTALE) if another length of the object
// shows that it is of another version.
uint64_t ValidatePart(const Response& response, ByteRange range, const Version& version);

// Returns `range` for messages: "bytes 0 to 65535". It must not be empty.
std::string FormatRange(ByteRange range);

// Returns the request header for `range`, which must not be empty.
std::string RangeHeader(ByteRange range);

[[noreturn]] void FailChanged();

}  // namespace ckptfs::http
