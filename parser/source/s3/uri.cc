#include "parser/source/s3/uri.h"

#include <algorithm>
#include <cerrno>

#include "parser/base/error.h"

namespace ckptfs::s3 {
namespace {

constexpr std::string_view kScheme = "s3://";
constexpr std::string_view kVersion = "?versionId=";
constexpr std::string_view kDigits = "0123456789ABCDEF";

bool IsLetterOrDigit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool IsOfBucket(char c) { return IsLetterOrDigit(c) || c == '-' || c == '.' || c == '_'; }

int DigitOf(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

Location ParseUri(std::string_view uri) {
  if (uri.starts_with(kScheme)) uri.remove_prefix(kScheme.size());
  Location location;
  if (const size_t version = uri.rfind(kVersion); version != std::string_view::npos) {
    location.version = uri.substr(version + kVersion.size());
    uri = uri.substr(0, version);
    if (location.version.empty()) Fail(EINVAL, "there is no version after ?versionId=");
  }
  const size_t slash = std::min(uri.find('/'), uri.size());
  location.bucket = uri.substr(0, slash);
  location.key = uri.substr(std::min(slash + 1, uri.size()));
  if (location.bucket.empty()) Fail(EINVAL, "names no bucket, as in s3://bucket/key");
  // What looks like a user may come with a password, which no message may show.
  if (location.bucket.find_first_of("@:%") != std::string::npos) {
    Fail(EINVAL,
         "names a user or a port where the bucket should be: the server of S3 is named by -o "
         "endpoint=, and credentials come from where the AWS tools have them");
  }
  if (!std::ranges::all_of(location.bucket, IsOfBucket)) {
    Fail(EINVAL, "{} cannot be the name of a bucket", Quoted(location.bucket));
  }
  if (location.is_folder() && !location.version.empty()) {
    Fail(EINVAL, "a folder has no versions");
  }
  return location;
}

std::string Encoded(std::string_view text, bool with_slashes) {
  std::string encoded;
  for (const char c : text) {
    const bool is_plain = IsLetterOrDigit(c) || c == '-' || c == '.' || c == '_' || c == '~';
    if (is_plain || (c == '/' && !with_slashes)) {
      encoded += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      encoded += '%';
      encoded += kDigits[byte >> 4U];
      encoded += kDigits[byte & 15U];
    }
  }
  return encoded;
}

std::string Decoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    const int high = text[i] == '%' && i + 2 < text.size() ? DigitOf(text[i + 1]) : -1;
    const int low = high >= 0 ? DigitOf(text[i + 2]) : -1;
    if (low >= 0) {
      decoded += static_cast<char>(16 * high + low);
      i += 2;
    } else {
      decoded += text[i] == '+' ? ' ' : text[i];
    }
  }
  return decoded;
}

}  // namespace ckptfs::s3
