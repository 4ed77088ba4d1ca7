#include "parser/source/hub/folder.h"

#include <fmt/format.h>

#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/io/folder.h"

namespace ckptfs::hub {
namespace {

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
    return MakeFolder(repository_, listing_, std::move(path));
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

}  // namespace

RemoteFolderPtr MakeFolder(RepositoryPtr repository, std::shared_ptr<const Listing> listing,
                           std::string path) {
  return std::make_shared<HubFolder>(std::move(repository), std::move(listing), std::move(path));
}

}  // namespace ckptfs::hub
