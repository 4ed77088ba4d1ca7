// A saved TensorDict as it lies on a disk.

#include <cerrno>
#include <utility>

#include "parser/error.h"
#include "parser/format/tensordict/directory.h"

namespace ckptfs::tensordict {
namespace {

// What an open file is charged for: it lives as long as the checkpoint.
constexpr uint64_t kCostOfFile = 512;  // In bytes.

class FolderDirectory final : public Directory {
 public:
  // `path` ends with '/', or is empty.
  FolderDirectory(FolderPtr folder, std::string path, Budget& budget)
      : folder_(std::move(folder)), path_(std::move(path)), budget_(budget) {}

  std::string PathOf(const std::string& name) const override { return path_ + name; }

  std::optional<Record> Open(const std::string& name) const override {
    if (!IsPlainName(name)) return std::nullopt;
    Record record{.data = {}, .member = PathOf(name), .is_in_file = true, .error = ""};
    try {
      const ByteSourcePtr file = folder_->Open(name);
      record.data = {file, 0, file->size()};
    } catch (const Error& e) {
      if (e.code() == ENOENT || e.code() == ENAMETOOLONG) return std::nullopt;
      if (IsLack(e.code())) throw;
      record.error = e.what();
      record.error_code = e.code();
    }
    budget_.Grow(record.data.length);
    budget_.Charge(kCostOfFile + 2 * record.member.size());
    return record;
  }

  std::unique_ptr<Directory> Below(const std::string& name) const override {
    if (!IsPlainName(name)) return nullptr;
    FolderPtr below = folder_->OpenFolder(name);
    if (below == nullptr) return nullptr;
    return std::make_unique<FolderDirectory>(std::move(below), path_ + name + "/", budget_);
  }

  std::vector<std::string> Unlisted() const override { return folder_->ListFolders(); }

 private:
  const FolderPtr folder_;
  const std::string path_;
  Budget& budget_;
};

}  // namespace

std::unique_ptr<Directory> MakeDirectory(const Folder& folder, Budget& budget) {
  const FolderPtr borrowed(FolderPtr(), &folder);
  return std::make_unique<FolderDirectory>(borrowed, "", budget);
}

}  // namespace ckptfs::tensordict
