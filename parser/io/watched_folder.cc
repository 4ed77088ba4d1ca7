#include "parser/io/watched_folder.h"

#include <algorithm>
#include <string_view>

#include "parser/base/error.h"

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
  const std::scoped_lock lock(mutex_);
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
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): it is not what was asked for.
  }
  return left_out;
}

}  // namespace ckptfs
