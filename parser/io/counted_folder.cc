#include "parser/io/counted_folder.h"

#include <memory>
#include <utility>

#include "parser/io/stored_size.h"

namespace ckptfs {
namespace {

class CountedFolder final : public Folder {
 public:
  CountedFolder(FolderPtr folder, Budget& budget) : folder_(std::move(folder)), budget_(budget) {}

  std::string name() const override { return folder_->name(); }
  std::vector<std::string> List() const override { return folder_->List(); }
  std::vector<std::string> ListFolders() const override { return folder_->ListFolders(); }
  bool is_remote() const override { return folder_->is_remote(); }
  timespec modified() const override { return folder_->modified(); }

  ByteSourcePtr Open(const std::string& name) const override {
    ByteSourcePtr file = folder_->Open(name);
    budget_.AddFile(StoredSize(*file), file->is_remote());
    return file;
  }

  FolderPtr OpenFolder(const std::string& name) const override {
    return MakeCountedFolder(folder_->OpenFolder(name), budget_);
  }

 private:
  const FolderPtr folder_;
  Budget& budget_;
};

}  // namespace

FolderPtr MakeCountedFolder(FolderPtr folder, Budget& budget) {
  if (folder == nullptr) return nullptr;
  return std::make_shared<CountedFolder>(std::move(folder), budget);
}

}  // namespace ckptfs
