#include "fs/companions.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "parser/layer/lazy_file.h"

namespace ckptfs {
namespace {

constexpr size_t kMostCompanions = 10'000;
constexpr int kMostDepth = 8;

class Finder {
 public:
  explicit Finder(const std::function<bool(const EntryInfo& info)>& is_shown)
      : is_shown_(is_shown) {}

  std::vector<BesideEntry> Find(const FolderPtr& folder, std::span<const std::string> parts,
                                int depth) {
    const auto is_part = [&](const std::string& name) {
      return std::ranges::count(parts, name) != 0;
    };
    std::vector<BesideEntry> entries;
    for (const std::string& name : folder->List()) {
      if (is_part(name)) continue;
      const std::optional<EntryInfo> info = FindAccessible(*folder, name);
      if (!info || info->is_folder || !is_shown_(*info)) continue;
      if (!Count()) return entries;
      entries.push_back({.name = name, .file = MakeListedFile(folder, name, *info), .entries = {}});
    }
    if (depth == kMostDepth || (folder->is_remote() && !folder->is_immutable())) return entries;
    for (const std::string& name : folder->ListFolders()) {
      if (is_part(name) || name.starts_with('.')) continue;
      const FolderPtr below = folder->OpenFolder(name);
      if (below == nullptr) continue;
      const std::optional<EntryInfo> info = FindAccessible(*folder, name);
      if (!info || !is_shown_(*info)) continue;
      if (!Count()) return entries;
      entries.push_back({.name = name, .file = nullptr, .entries = Find(below, {}, depth + 1)});
    }
    return entries;
  }

  bool are_all() const { return count_ <= kMostCompanions; }

 private:
  bool Count() { return ++count_ <= kMostCompanions; }

  const std::function<bool(const EntryInfo& info)>& is_shown_;
  size_t count_ = 0;
};

}  // namespace

Companions FindCompanions(const FolderPtr& folder, std::span<const std::string> parts,
                          const std::function<bool(const EntryInfo& info)>& is_shown) {
  Finder finder(is_shown);
  std::vector<BesideEntry> entries = finder.Find(folder, parts, 0);
  return {.entries = std::move(entries), .are_all = finder.are_all()};
}

}  // namespace ckptfs
