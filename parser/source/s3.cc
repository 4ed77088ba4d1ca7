// Objects in S3 and compatible stores: s3/location.h describes the URIs.

#include <fmt/format.h>

#include <memory>
#include <string>
#include <string_view>

#include "parser/scheme.h"
#include "parser/source/s3/aws_bucket.h"
#include "parser/source/s3/config.h"
#include "parser/source/s3/folder.h"
#include "parser/source/s3/location.h"

namespace ckptfs {
namespace {

// Returns the URI of an object for messages: without the query of a signed URL, which by mistake
// may be part of the key.
std::string FormatName(const s3::ObjectId& id) {
  const size_t query = id.key.find('?');
  const bool is_signed =
      query != std::string::npos && id.key.find("ignature=", query) != std::string::npos;
  return fmt::format("s3://{}/{}{}{}", id.bucket,
                     id.key.substr(0, is_signed ? query : std::string::npos),
                     id.version.empty() ? "" : "?versionId=", id.version);
}

SchemeSource OpenS3(const Location& location, const SourceOptions& options) {
  const s3::ObjectId id = s3::ParseUri(location);
  const auto bucket = std::make_shared<s3::AwsBucket>(id.bucket, s3::ProcessEnvironment, options);
  return s3::OpenInBucket(bucket, id, fmt::format("s3://{}/", id.bucket), FormatName(id));
}

constexpr std::string_view kS3Names[] = {"s3"};

}  // namespace

extern const Scheme s3_scheme{.names = kS3Names, .open = OpenS3};

}  // namespace ckptfs
