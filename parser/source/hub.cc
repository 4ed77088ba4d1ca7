// Repositories of the Hugging Face Hub: hub/location.h describes the URIs.

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "parser/base/error.h"
#include "parser/base/user_settings.h"
#include "parser/scheme.h"
#include "parser/source/hub/folder.h"
#include "parser/source/hub/listing.h"
#include "parser/source/hub/local_cache.h"
#include "parser/source/hub/location.h"
#include "parser/source/hub/repository.h"
#include "parser/source/hub/settings.h"

namespace ckptfs {
namespace {

// Opens a file or a folder of a snapshot in the local cache, as a local path.
SchemeSource OpenOffline(const hub::FileId& id, const SourceOptions& options) {
  const std::string snapshot = hub::FindSnapshot(hub::FindCache(GetEnvironment), id.repository);
  const std::string path = fmt::format("{}/{}", snapshot, id.path);
  const auto schemes = Schemes();
  const auto file = std::ranges::find_if(
      schemes, [](const Scheme* scheme) { return std::ranges::count(scheme->names, "file") != 0; });
  try {
    return (*file)->open({.text = path, .scheme = "", .authority = "", .path = path}, options);
  } catch (const Error& e) {
    if (e.code() != ENOENT) throw;
    Fail(ENOENT, "not in the local cache, and HF_HUB_OFFLINE is set");
  }
}

SchemeSource OpenHub(const Location& location, const SourceOptions& options) {
  const hub::FileId id = hub::ParseUri(location);
  if (hub::IsOffline(GetEnvironment)) return OpenOffline(id, options);
  const auto repository =
      std::make_shared<const hub::Repository>(id.repository, GetEnvironment, options);
  const std::string above = id.path.substr(0, id.path.rfind('/') + 1);
  const auto listing = std::make_shared<const hub::Listing>(repository->List(above));
  if (id.is_folder()) {
    if (!id.path.empty() && !listing->HasFolder(id.path)) Fail(ENOENT, "no such folder");
    return RemoteSource{.object = nullptr,
                        .folder = hub::MakeFolder(repository, listing, id.path),
                        .file_name = ""};
  }
  RemoteFolderPtr folder = hub::MakeFolder(repository, listing, above);
  std::string name = id.path.substr(above.size());
  if (listing->Find(id.path) != nullptr) {
    RemoteObjectPtr object = folder->Open(name);
    return RemoteSource{
        .object = std::move(object), .folder = std::move(folder), .file_name = std::move(name)};
  }
  // As with local folders, the slash is optional.
  RemoteFolderPtr below = folder->OpenFolder(name);
  if (below == nullptr) Fail(ENOENT, "no such file or folder");
  return RemoteSource{.object = nullptr, .folder = std::move(below), .file_name = ""};
}

constexpr std::string_view kHubNames[] = {"hf"};

}  // namespace

extern const Scheme hub_scheme{.names = kHubNames, .open = OpenHub};

}  // namespace ckptfs
