// Objects in Google Cloud Storage: gs://bucket/key, where the key is not encoded, as in S3.

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <string_view>

#include "parser/base/error.h"
#include "parser/base/text.h"
#include "parser/scheme.h"
#include "parser/source/gs/bucket.h"
#include "parser/source/s3/folder.h"
#include "parser/source/s3/location.h"

namespace ckptfs {
namespace {

bool IsOfBucket(char c) {
  return (c >= 'a' && c <= 'z') || IsDigit(c) || c == '-' || c == '.' || c == '_';
}

s3::ObjectId ParseUri(const Location& uri) {
  s3::ObjectId id{.bucket = uri.authority, .key = "", .version = ""};
  if (id.bucket.empty()) Fail(EINVAL, "missing bucket (expected gs://bucket/key)");
  // The bucket may be a user with a password, which no message may contain.
  if (!std::ranges::all_of(id.bucket, IsOfBucket)) {
    Fail(EINVAL, "invalid bucket name (expected gs://bucket/key)");
  }
  if (!uri.path.empty()) id.key = uri.path.substr(1);
  return id;
}

SchemeSource OpenGoogleStorage(const Location& location, const SourceOptions& options) {
  const s3::ObjectId id = ParseUri(location);
  return s3::OpenInBucket(std::make_shared<gs::Bucket>(id.bucket, s3::ProcessEnvironment, options),
                          id, fmt::format("gs://{}/", id.bucket),
                          fmt::format("gs://{}/{}", id.bucket, id.key));
}

constexpr std::string_view kGoogleStorageNames[] = {"gs"};

}  // namespace

extern const Scheme gs_scheme{.names = kGoogleStorageNames, .open = OpenGoogleStorage};

}  // namespace ckptfs
