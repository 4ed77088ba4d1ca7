#include "parser/format/tensordict/directory.h"

#include <cerrno>
#include <utility>

#include "parser/base/error.h"

namespace ckptfs::tensordict {
namespace {

// The charge for an open file, which lives as long as the checkpoint.
constexpr uint64_t kCostOfFile = 512;  // In bytes.

// The charge for the name and the location of a file, as for a parsed entry of an archive.
constexpr uint64_t kParsed = 128;  // In bytes.

// Whether `folder` can be listed. Folders of web servers cannot, and they return a folder for any
// name.
bool IsListed(const Folder& folder) {
  if (!folder.is_remote()) return true;
  try {
    folder.ListFolders();
  } catch (const Error& e) {
    if (IsTransient(e.code())) throw;
    return e.code() != ENOTSUP;
  }
  return true;
}

class FolderDirectory final : public Directory {
 public:
  // `path` ends with '/', or is empty.
  FolderDirectory(FolderPtr folder, std::string path, bool is_listed, Budget& budget)
      : folder_(std::move(folder)), path_(std::move(path)), is_listed_(is_listed), budget_(budget) {
    if (!is_listed_) meta_ = OpenFile(kMetaName);
  }

  bool has_meta() const { return meta_.has_value(); }

  std::string PathOf(const std::string& name) const override { return path_ + name; }

  std::optional<Record> Open(const std::string& name) const override {
    return name == kMetaName && !is_listed_ ? meta_ : OpenFile(name);
  }

  std::unique_ptr<Directory> Below(const std::string& name) const override {
    if (!IsPlainName(name)) return nullptr;
    FolderPtr below = folder_->OpenFolder(name);
    if (below == nullptr) return nullptr;
    auto directory = std::make_unique<FolderDirectory>(std::move(below), path_ + name + "/",
                                                       is_listed_, budget_);
    return is_listed_ || directory->has_meta() ? std::move(directory) : nullptr;
  }

  bool is_listed() const override { return is_listed_; }

  std::vector<std::string> Unlisted() const override { return folder_->ListFolders(); }

 private:
  std::optional<Record> OpenFile(const std::string& name) const {
    if (!IsPlainName(name)) return std::nullopt;
    Record record{.data = {}, .member = PathOf(name), .is_in_file = true};
    try {
      const ByteSourcePtr file = name == kMetaName ? folder_->Open(name) : folder_->OpenData(name);
      record.data = {file, 0, file->size()};
    } catch (const Error& e) {
      if (e.code() == ENOENT || e.code() == ENAMETOOLONG) return std::nullopt;
      if (IsTransient(e.code())) throw WithContext(record.member, e);
      record.error = e;
    }
    budget_.Grow(kParsed);
    budget_.Charge(kCostOfFile + 2 * record.member.size());
    return record;
  }

  const FolderPtr folder_;
  const std::string path_;
  const bool is_listed_;
  Budget& budget_;
  std::optional<Record> meta_;  // Of a folder that cannot be listed.
};

class MemberDirectory final : public Directory {
 public:
  // `path` ends with '/', or is empty.
  MemberDirectory(const Members& members, std::string path)
      : members_(members), path_(std::move(path)) {}

  std::string PathOf(const std::string& name) const override { return path_ + name; }

  std::optional<Record> Open(const std::string& name) const override {
    if (!IsPlainName(name)) return std::nullopt;
    const zip::Member* member = members_.Find(PathOf(name));
    if (member == nullptr) return std::nullopt;
    return members_.Open(*member, member->name);
  }

  // Archives may omit members for directories: a directory exists if its meta.json does.
  std::unique_ptr<Directory> Below(const std::string& name) const override {
    if (!IsPlainName(name)) return nullptr;
    auto below = std::make_unique<MemberDirectory>(members_, path_ + name + "/");
    return members_.Find(below->PathOf(kMetaName)) == nullptr ? nullptr : std::move(below);
  }

  bool is_listed() const override { return true; }

  // No version that writes archives leaves any.
  std::vector<std::string> Unlisted() const override { return {}; }

 private:
  const Members& members_;
  const std::string path_;
};

}  // namespace

std::unique_ptr<Directory> MakeDirectory(const Folder& folder, Budget& budget) {
  const FolderPtr borrowed(FolderPtr(), &folder);
  return std::make_unique<FolderDirectory>(borrowed, "", IsListed(folder), budget);
}

std::unique_ptr<Directory> MakeDirectory(const Members& members) {
  return std::make_unique<MemberDirectory>(members, "");
}

}  // namespace ckptfs::tensordict
