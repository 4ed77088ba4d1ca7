#include "parser/io/tracked_folder.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "parser/base/error.h"
#include "parser/io/byte_source.h"

namespace ckptfs {
namespace {

constexpr size_t kMostFolders = 100;

bool IsCalledCheckpoint(std::string_view name) {
  constexpr std::string_view kEndings[] = {".safetensors", ".bin", ".pt",  ".pth",    ".ckpt",
                                           ".gguf",        ".npz", ".npy", ".tensors"};
  return !name.starts_with('.') && std::ranges::any_of(kEndings, [&](std::string_view ending) {
    return name.ends_with(ending);
  });
}

bool HasCheckpoint(const Folder& folder) {
  return std::ranges::any_of(folder.List(),
                             [](const std::string& name) { return IsCalledCheckpoint(name); });
}

}  // namespace

std::vector<std::string> WatchedFolder::LeftOut(std::span<const std::string> files) const {
  std::vector<std::string> left_out;
  const MutexLock lock(mutex_);
  for (const std::string& name : files) {
    if (IsCalledCheckpoint(name) && !opened_.contains(name)) left_out.push_back(name);
  }
  if (folder_->is_remote()) return left_out;
  try {
    const std::vector<std::string> names = folder_->ListFolders();
    for (const std::string& name : std::span(names).first(std::min(names.size(), kMostFolders))) {
      if (opened_.contains(name) || name.starts_with('.')) continue;
      const auto folder = folder_->OpenFolder(name);
      if (folder != nullptr && HasCheckpoint(*folder)) left_out.push_back(name + '/');
    }
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the warning is optional.
  }
  return left_out;
}

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
