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
bool HasContents(const RemoteFolder& folder) {
  try {
    return !folder.List().empty() || !folder.ListFolders().empty();
  } catch (const Error& e) {
    if (e.code() != ENOENT && e.code() != EACCES) throw;
    return false;
  }
}

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

SchemeSource Open(const Location& location, const SourceOptions& options) {
  const s3::ObjectId id = s3::ParseUri(location);
  const auto bucket = std::make_shared<s3::Bucket>(id.bucket, s3::ProcessEnvironment, options);
  const auto folder = [&](const std::string& prefix) {
    return s3::MakeBucketFolder(bucket, prefix, fmt::format("s3://{}/{}", id.bucket, prefix));
  };
  if (id.is_folder()) {
    RemoteFolderPtr named = folder(id.key);
    if (named->List().empty() && named->ListFolders().empty()) {
      Fail(ENOENT, "no such object or folder");
    }
    return RemoteSource{.object = nullptr, .folder = std::move(named), .file_name = ""};
  }
  const std::string prefix = id.key.substr(0, id.key.rfind('/') + 1);
  try {
    return RemoteSource{.object = s3::OpenObject(bucket, id.key, id.version, FormatName(id)),
                        .folder = folder(prefix),
                        .file_name = id.key.substr(prefix.size())};
  } catch (const Error& e) {
    if (e.code() != ENOENT || !id.version.empty()) throw;
    // As with local folders, the slash is optional.
    RemoteFolderPtr below = folder(id.key + "/");
    if (!HasContents(*below)) throw;
    return RemoteSource{.object = nullptr, .folder = std::move(below), .file_name = ""};
  }
}

constexpr std::string_view kNames[] = {"s3"};

}  // namespace

extern const Scheme s3_scheme{.names = kNames, .open = Open};

}  // namespace ckptfs
