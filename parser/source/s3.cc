// Objects in S3 and compatible stores: s3/location.h describes the URIs.

#include <fmt/format.h>

#include <cerrno>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "parser/base/error.h"
#include "parser/scheme.h"
#include "parser/source/s3/bucket.h"
#include "parser/source/s3/config.h"
#include "parser/source/s3/folder.h"
#include "parser/source/s3/location.h"

namespace ckptfs {
namespace {

// Whether `folder` has objects that may be listed.
bool HasContents(const Folder& folder) {
  try {
    return !folder.List().empty() || !folder.ListFolders().empty();
  } catch (const Error& e) {
    if (e.code() != ENOENT && e.code() != EACCES) throw;
    return false;
  }
}

// Returns the URI of an object for messages: without the query of a signed URL, which by mistake
// may be part of the key.
std::string FormatName(const s3::Location& location) {
  const size_t query = location.key.find('?');
  const bool is_signed =
      query != std::string::npos && location.key.find("ignature=", query) != std::string::npos;
  return fmt::format("s3://{}/{}{}{}", location.bucket,
                     location.key.substr(0, is_signed ? query : std::string::npos),
                     location.version.empty() ? "" : "?versionId=", location.version);
}

Source Open(const std::string& uri, const SourceOptions& options) {
  const s3::Location location = s3::ParseUri(uri);
  const auto bucket =
      std::make_shared<s3::Bucket>(location.bucket, s3::ProcessEnvironment, options);
  const auto folder = [&](const std::string& prefix) {
    return s3::MakeBucketFolder(bucket, prefix, fmt::format("s3://{}/{}", location.bucket, prefix));
  };
  if (location.is_folder()) {
    FolderPtr named = folder(location.key);
    if (named->List().empty() && named->ListFolders().empty()) {
      Fail(ENOENT, "no such object or folder");
    }
    return {.file = nullptr, .folder = std::move(named), .file_name = ""};
  }
  const std::string prefix = location.key.substr(0, location.key.rfind('/') + 1);
  try {
    return {.file = options.cached(
                s3::OpenObject(bucket, location.key, location.version, FormatName(location))),
            .folder = folder(prefix),
            .file_name = location.key.substr(prefix.size())};
  } catch (const Error& e) {
    if (e.code() != ENOENT || !location.version.empty()) throw;
    // As with local folders, the slash is optional.
    FolderPtr below = folder(location.key + "/");
    if (!HasContents(*below)) throw;
    return {.file = nullptr, .folder = std::move(below), .file_name = ""};
  }
}

constexpr std::string_view kNames[] = {"s3"};

}  // namespace

extern const Scheme s3_scheme{.names = kNames, .open = Open};

}  // namespace ckptfs
