// Repositories of the Hugging Face Hub: hub/location.h describes the URIs.

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/base/user_settings.h"
#include "parser/io/folder.h"
#include "parser/io/remote_object.h"
#include "parser/scheme.h"
#include "parser/source/hub/listing.h"
#include "parser/source/hub/local_cache.h"
#include "parser/source/hub/location.h"
#include "parser/source/hub/repository.h"
#include "parser/source/hub/settings.h"

namespace ckptfs {
namespace hub {
namespace {

// A folder of the repository: `path` is empty or ends with '/', and `listing` contains it. Sends no
// request, and neither do its files before they are read.
class HubFolder final : public RemoteFolder {
 public:
  HubFolder(RepositoryPtr repository, std::shared_ptr<const Listing> listing, std::string path)
      : repository_(std::move(repository)), listing_(std::move(listing)), path_(std::move(path)) {}

  std::string name() const override { return fmt::format("{}/{}", repository_->id().Uri(), path_); }

  std::vector<std::string> List() const override { return listing_->FilesIn(path_); }
  std::vector<std::string> ListFolders() const override { return listing_->FoldersIn(path_); }

  RemoteObjectPtr Open(const std::string& name) const override {
    const File* const file = FindFile(name);
    if (file == nullptr) Fail(ENOENT, "no such file");
    return repository_->Open(*file, this->name() + name);
  }

  RemoteFolderPtr OpenFolder(const std::string& name) const override {
    RequirePlain(name);
    std::string path = path_ + name + "/";
    if (!listing_->HasFolder(path)) return nullptr;
    return std::make_shared<HubFolder>(repository_, listing_, std::move(path));
  }

  std::optional<EntryInfo> Find(const std::string& name) const override {
    if (const File* const file = FindFile(name); file != nullptr) {
      return EntryInfo{.size = file->size, .version = file->id.Hex()};
    }
    if (!listing_->HasFolder(path_ + name + "/")) return std::nullopt;
    return EntryInfo{.is_folder = true};
  }

  bool is_immutable() const override { return true; }

 private:
  static void RequirePlain(const std::string& name) {
    if (!IsPlainName(name)) Fail(EBADMSG, "invalid file name");
  }

  const File* FindFile(const std::string& name) const {
    RequirePlain(name);
    return listing_->Find(path_ + name);
  }

  const RepositoryPtr repository_;
  const std::shared_ptr<const Listing> listing_;
  const std::string path_;
};

// Opens a file or a folder of a snapshot in the local cache, as a local path.
SchemeSource OpenOffline(const FileId& id, const SourceOptions& options) {
  const std::string snapshot = FindSnapshot(FindCache(GetEnvironment), id.repository);
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

SchemeSource Open(const Location& location, const SourceOptions& options) {
  const FileId id = ParseUri(location);
  if (IsOffline(GetEnvironment)) return OpenOffline(id, options);
  const auto repository =
      std::make_shared<const Repository>(id.repository, GetEnvironment, options);
  const std::string above = id.path.substr(0, id.path.rfind('/') + 1);
  const auto listing = std::make_shared<const Listing>(repository->List(above));
  if (id.is_folder()) {
    if (!id.path.empty() && !listing->HasFolder(id.path)) Fail(ENOENT, "no such folder");
    return RemoteSource{.object = nullptr,
                        .folder = std::make_shared<HubFolder>(repository, listing, id.path),
                        .file_name = ""};
  }
  RemoteFolderPtr folder = std::make_shared<HubFolder>(repository, listing, above);
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

constexpr std::string_view kNames[] = {"hf"};

}  // namespace
}  // namespace hub

extern const Scheme hub_scheme{.names = hub::kNames, .open = hub::Open};

}  // namespace ckptfs
