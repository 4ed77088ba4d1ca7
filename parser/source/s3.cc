// Objects in S3 and in whatever else speaks its protocol: see s3/uri.h for what a URI names.

#include <fmt/format.h>

#include <cerrno>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "parser/base/error.h"
#include "parser/scheme.h"
#include "parser/source/s3/access.h"
#include "parser/source/s3/bucket.h"
#include "parser/source/s3/config.h"
#include "parser/source/s3/folder.h"
#include "parser/source/s3/uri.h"

namespace ckptfs {
namespace {

// Whether there is something in it that we may see.
bool HasContents(const Folder& folder) {
  try {
    return !folder.List().empty() || !folder.ListFolders().empty();
  } catch (const Error& e) {
    if (e.code() != ENOENT && e.code() != EACCES) throw;
    return false;
  }
}

// Returns what messages call an object: its URI, without the query of a signed URL, which by
// mistake may be part of the key.
std::string NameOf(const s3::Location& location) {
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
    return s3::MakeFolder(bucket, prefix, fmt::format("s3://{}/{}", location.bucket, prefix));
  };
  if (location.is_folder()) {
    FolderPtr named = folder(location.key);
    if (named->List().empty() && named->ListFolders().empty()) {
      Fail(ENOENT, "there is no object whose key begins so");
    }
    return {.file = nullptr, .folder = std::move(named), .file_name = ""};
  }
  const std::string prefix = location.key.substr(0, location.key.rfind('/') + 1);
  try {
    return {.file = options.cached(
                s3::OpenObject(bucket, location.key, location.version, NameOf(location))),
            .folder = folder(prefix),
            .file_name = location.key.substr(prefix.size())};
  } catch (const Error& e) {
    if (e.code() != ENOENT || !location.version.empty()) throw;
    // A folder may be named without the slash, as local ones are.
    FolderPtr below = folder(location.key + "/");
    if (!HasContents(*below)) throw;
    return {.file = nullptr, .folder = std::move(below), .file_name = ""};
  }
}

constexpr std::string_view kNames[] = {"s3"};

}  // namespace

extern const Scheme s3_scheme{.names = kNames, .open = Open};

}  // namespace ckptfs
