#include "fs/companions.h"

#include <cerrno>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "parser/base/error.h"
#include "parser/layer/lazy_file.h"

namespace ckptfs {
namespace {

constexpr size_t kMostCompanions = 10'000;
constexpr int kMostDepth = 8;

// Remote subfolders whose listing may take a request.
constexpr int kMostRemoteFolders = 20;

class Finder {
 public:
  explicit Finder(const std::function<bool(const EntryInfo& info)>& is_shown)
      : is_shown_(is_shown) {}

  std::vector<BesideEntry> Find(const FolderPtr& folder, std::span<const std::string> parts,
                                int depth) {
    const std::set<std::string_view> set(parts.begin(), parts.end());
    const auto is_part = [&](const std::string& name) { return set.contains(name); };
    std::vector<BesideEntry> entries;
    for (const std::string& name : folder->List()) {
      if (is_part(name)) continue;
      const std::optional<EntryInfo> info = FindAccessible(*folder, name);
      if (!info || info->is_folder || !is_shown_(*info)) continue;
      if (!Count()) return entries;
      entries.push_back({.name = name, .file = MakeListedFile(folder, name, *info), .entries = {}});
    }
    if (depth == kMostDepth) return entries;
    for (const std::string& name : folder->ListFolders()) {
      if (is_part(name) || name.starts_with('.')) continue;
      const std::optional<EntryInfo> info = FindAccessible(*folder, name);
      if (!info || !is_shown_(*info)) continue;
      if (!Count() || !CountFolder(*folder)) return entries;
      try {
        const FolderPtr below = folder->OpenFolder(name);
        if (below == nullptr) continue;
        entries.push_back({.name = name, .file = nullptr, .entries = Find(below, {}, depth + 1)});
      } catch (const Error& e) {
        if (e.code() != EACCES) throw;
      }
    }
    return entries;
  }

  bool are_all() const { return count_ <= kMostCompanions && remote_ <= kMostRemoteFolders; }

 private:
  bool Count() { return ++count_ <= kMostCompanions; }

  bool CountFolder(const Folder& folder) {
    if (folder.is_remote() && !folder.is_immutable()) ++remote_;
    return remote_ <= kMostRemoteFolders;
  }

  const std::function<bool(const EntryInfo& info)>& is_shown_;
  size_t count_ = 0;
  int remote_ = 0;  // Folders.
};

}  // namespace

Companions FindCompanions(const FolderPtr& folder, std::span<const std::string> parts,
                          const std::function<bool(const EntryInfo& info)>& is_shown) {
  Finder finder(is_shown);
  std::vector<BesideEntry> entries = finder.Find(folder, parts, 0);
  return {.entries = std::move(entries), .are_all = finder.are_all()};
}

}  // namespace ckptfs
