#include "parser/source/http/version.h"

#include <fmt/format.h>

#include <cerrno>
#include <string_view>

#include "parser/base/error.h"
#include "parser/source/http/attempts.h"
#include "parser/source/http/fields.h"

namespace ckptfs::http {
namespace {

// What an answer tells of its version, which is kept as long as the mount: what is longer than any
// server writes counts as not told.
std::string_view Told(const Response& response, std::string_view header) {
  constexpr size_t kLongest = 1000;
  const std::string_view told = response.Find(header);
  return told.size() <= kLongest ? told : std::string_view();
}

// An answer without a tag cannot be told from one of another version.
bool IsOf(const Version& version, const Response& response) {
  if (Told(response, "etag") != version.tag) return false;
  return IsStrongTag(version.tag) || Told(response, "last-modified") == version.last_modified;
}

}  // namespace

std::string Version::Condition() const {
  // Weak tags never match there: those are compared when the answer comes.
  if (IsStrongTag(tag)) return "If-Match: " + tag;
  if (!last_modified.empty()) return "If-Unmodified-Since: " + last_modified;
  return {};
}

Version VersionOf(const Response& response, uint64_t size) {
  return {.size = size,
          .tag = std::string(Told(response, "etag")),
          .last_modified = std::string(Told(response, "last-modified"))};
}

void RequireUncoded(const Response& response) {
  const std::string_view coding = response.Find("content-encoding");
  if (coding.empty() || coding == "identity") return;
  throw Fault(EREMOTEIO, fmt::format("the server sends bytes in the coding {}", Quoted(coding)));
}

void RequirePart(const Response& response, ByteRange range, const Version& version) {
  if (!IsOf(version, response)) FailChanged();
  RequireUncoded(response);
  if (response.status == 200) {
    throw Fault(EREMOTEIO, "the server sends all bytes instead of a part");
  }

  const std::string_view told = response.Find("content-range");
  const auto part = ParseContentRange(told);
  // Under the same strong tag another length is no other version, but a mistake of the server.
  const bool is_as_long = part && part->total == version.size;
  if (part && !is_as_long && !IsStrongTag(version.tag)) FailChanged();
  if (!is_as_long || part->offset != range.offset || part->length != range.length) {
    throw Fault(EREMOTEIO, fmt::format("the server sends {} instead",
                                       told.empty() ? "no range" : Quoted(told)));
  }
  const std::string_view length = response.Find("content-length");
  if (!length.empty() && ParseLength(length) != range.length) {
    throw Fault(EREMOTEIO, fmt::format("the server announces {} bytes instead of {}",
                                       Quoted(length), range.length));
  }
}

std::string NameOf(ByteRange range) {
  return fmt::format("bytes {} to {}", range.offset, range.offset + range.length - 1);
}

std::string RangeHeader(ByteRange range) {
  return fmt::format("Range: bytes={}-{}", range.offset, range.offset + range.length - 1);
}

void FailChanged() { Fail(ESTALE, "the object has changed since it was opened"); }

}  // namespace ckptfs::http
