#include "fs/store_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <functional>
#include <set>
#include <utility>

#include "fs/beside.h"
#include "fs/namespace.h"
#include "parser/base/cancellation.h"
#include "parser/base/error.h"
#include "parser/base/hash.h"
#include "parser/detect.h"
#include "parser/folder_checkpoint.h"

namespace ckptfs {
namespace {

constexpr std::string_view kTreeSuffix = ".d";
constexpr char kClash = '~';
constexpr size_t kMostClashes = 8;

// The limit of the name of a tree, X.d, in bytes: programs read no longer names. Other names may be
// as long as the kernel allows.
constexpr size_t kMaxTreeName = NAME_MAX;

// Remote folders that one listing looks into.
constexpr size_t kMostRemoteFolders = 50;

// Files of a folder whose versions identify it.
constexpr size_t kMostIdentified = 200;

bool IsCalledIndex(std::string_view name) { return name.ends_with(".index.json"); }

bool DetectFile(const Folder& folder, const std::string& name) {
  return IsCheckpoint({.file = folder.Open(name), .folder = nullptr, .file_name = name});
}

bool DetectFolder(const Folder& folder, const std::string& name) {
  const FolderPtr below = folder.OpenFolder(name);
  return below != nullptr && IsOneCheckpoint(*below);
}

// Changes if files are added, removed or replaced. Nothing if the folder must not be listed.
std::optional<std::string> VersionOf(const Folder& folder) try {
  const timespec modified = folder.modified();
  std::string text = fmt::format("{}.{}", modified.tv_sec, modified.tv_nsec);
  const std::vector<std::string> files = folder.List();
  for (size_t i = 0; i < std::min(files.size(), kMostIdentified); ++i) {
    const auto info = FindAccessible(folder, files[i]);
    text += fmt::format("/{}:{}", files[i], info ? info->version : "");
  }
  return fmt::format("{:x}:{}", HashOf(text), files.size());
} catch (const Error& e) {
  if (e.code() != EACCES) throw;
  return std::nullopt;
}

}  // namespace

StoreFolder::StoreFolder(FolderPtr folder, const StoreSettings& settings)
    : folder_(std::move(folder)), settings_(settings), listed_(std::chrono::steady_clock::now()) {}

double StoreFolder::seconds() const {
  if (folder_->is_immutable()) return kForever;
  return folder_->is_remote() ? static_cast<double>(settings_.refresh.count()) : 1;
}

void StoreFolder::Refresh() {
  if (!folder_->is_remote() || folder_->is_immutable()) return;
  const auto now = std::chrono::steady_clock::now();
  const MutexLock lock(mutex_);
  if (now - listed_ < settings_.refresh) return;
  listed_ = now;
  folder_->ForgetListing();
}

std::optional<StoreItem> StoreFolder::Find(const std::string& name) {
  if (!(folder_->is_remote() ? IsPlainName(name) : IsLocalName(name))) return std::nullopt;
  Refresh();
  if (auto info = folder_->Find(name)) {
    const auto kind = info->is_folder ? StoreItem::Kind::kFolder : StoreItem::Kind::kFile;
    if (kind == StoreItem::Kind::kFile && !settings_.mirrors_files) return FindTree(name);
    std::string identity = info->version;
    return StoreItem{.kind = kind, .info = *std::move(info), .identity = std::move(identity)};
  }
  if (auto target = folder_->FindLink(name)) {
    std::string identity = *target;
    return StoreItem{.kind = StoreItem::Kind::kLink,
                     .info = {.modified = folder_->modified()},
                     .target = *std::move(target),
                     .identity = std::move(identity)};
  }
  if (auto view = FindView(name)) return view;
  return FindTree(name);
}

// The view of weights without safetensors is a link to that of their tree.
std::optional<StoreItem> StoreFolder::FindView(const std::string& name) const {
  if (!settings_.has_views || !settings_.mirrors_files) return std::nullopt;
  std::string target = FindViewInStore(*folder_, name);
  if (target.empty()) return std::nullopt;
  return StoreItem{.kind = StoreItem::Kind::kLink,
                   .info = {.modified = folder_->modified()},
                   .target = target,
                   .checkpoint = {},
                   .identity = target};
}

// A '~' is added to the name of a tree as long as there is something of that name.
std::optional<StoreItem> StoreFolder::FindTree(const std::string& name) {
  if (name.size() > kMaxTreeName) return std::nullopt;
  std::string taken = name;
  while (taken.ends_with(kClash)) {
    taken.pop_back();
    if (name.size() - taken.size() > kMostClashes || !IsTaken(taken)) return std::nullopt;
  }
  if (!taken.ends_with(kTreeSuffix) || taken.size() == kTreeSuffix.size()) return std::nullopt;
  return FindTreeOf(taken.substr(0, taken.size() - kTreeSuffix.size()));
}

bool StoreFolder::IsTaken(const std::string& name) const {
  const auto info = FindAccessible(*folder_, name);
  if (!info) return folder_->FindLink(name).has_value();
  return info->is_folder || settings_.mirrors_files;
}

std::optional<StoreItem> StoreFolder::FindTreeOf(const std::string& checkpoint) {
  if (auto info = FindAccessible(*folder_, checkpoint)) {
    std::string identity = info->version;
    if (info->is_folder) {
      const FolderPtr below = folder_->OpenFolder(checkpoint);
      const auto version = below == nullptr ? std::nullopt : VersionOf(*below);
      if (!version) return std::nullopt;
      identity += *version;
      info->modified = below->modified();
    }
    const bool is_one = info->is_folder ? IsCheckpointFolder(checkpoint, identity)
                                        : IsCheckpointFile(checkpoint, *info);
    if (!is_one) return std::nullopt;
    return StoreItem{.kind = StoreItem::Kind::kTree,
                     .info = *std::move(info),
                     .target = {},
                     .checkpoint = checkpoint,
                     .identity = std::move(identity)};
  }
  // A link beside its target has a tree beside that of the target.
  const auto target = folder_->FindLink(checkpoint);
  if (!target || !IsLocalName(*target) || !FindTreeOf(*target)) return std::nullopt;
  return StoreItem{.kind = StoreItem::Kind::kLink,
                   .info = {.modified = folder_->modified()},
                   .target = *target + std::string(kTreeSuffix),
                   .checkpoint = {},
                   .identity = *target};
}

bool StoreFolder::IsCheckpointFile(const std::string& name, const EntryInfo& info) {
  return info.size > 0 && !name.starts_with('.') && Detected(name, info.version, DetectFile);
}

bool StoreFolder::IsCheckpointFolder(const std::string& name, const std::string& version) {
  return !name.starts_with('.') && Detected(name, version, DetectFolder);
}

bool StoreFolder::Detected(const std::string& name, const std::string& version,
                           bool (*detect)(const Folder& folder, const std::string& name)) {
  {
    const MutexLock lock(mutex_);
    const auto known = detections_.find(name);
    if (known != detections_.end() && known->second.version == version) {
      return known->second.is_checkpoint;
    }
  }
  bool is_checkpoint = false;
  try {
    is_checkpoint = detect(*folder_, name);
  } catch (const Error& e) {
    // An unreadable file has no tree; the others have theirs.
    if (e.code() == EINTR || (folder_->is_remote() && IsTransient(e.code()))) throw;
    if (IsTransient(e.code())) return false;
  }
  const MutexLock lock(mutex_);
  detections_.insert_or_assign(name, Detection{.version = version, .is_checkpoint = is_checkpoint});
  return is_checkpoint;
}

std::shared_ptr<const StoreListing> StoreFolder::List() {
  Refresh();
  const std::vector<std::string> files = folder_->List();
  const std::vector<std::string> folders = folder_->ListFolders();
  const std::vector<std::string> links = folder_->ListLinks();
  auto listing = std::make_shared<StoreListing>();
  std::vector<mode_t> types;
  const auto add = [&](std::string name, mode_t type) {
    if (name.size() > Tree::kMaxFuseName) return;  // The kernel would refuse the whole listing.
    listing->names.push_back(std::move(name));
    types.push_back(type);
  };
  std::set<std::string_view> taken;
  for (const auto* names : {&files, &folders, &links}) {
    for (const std::string& name : *names) {
      if (names != &files || settings_.mirrors_files) taken.insert(name);
    }
  }
  const auto add_tree = [&](const std::string& checkpoint, mode_t type) {
    std::string name = checkpoint + std::string(kTreeSuffix);
    for (size_t clashes = 0; taken.contains(name); ++clashes) {
      if (clashes == kMostClashes) return;
      name += kClash;
    }
    if (name.size() <= kMaxTreeName) add(std::move(name), type);
  };
  PeriodicCheck steps;
  for (const std::string& name : files) {
    steps.Next();
    if (settings_.mirrors_files) add(name, S_IFREG);
    const bool has_tree = folder_->is_remote() ? IsCalledCheckpoint(name) || IsCalledIndex(name)
                                               : FindTreeOf(name).has_value();
    if (has_tree) add_tree(name, S_IFDIR);
  }
  size_t looked_into = 0;
  for (const std::string& name : folders) {
    steps.Next();
    add(name, S_IFDIR);
    if (folder_->is_remote() && ++looked_into > kMostRemoteFolders) continue;
    if (FindTreeOf(name)) add_tree(name, S_IFDIR);
  }
  for (const std::string& name : links) {
    add(name, S_IFLNK);
    if (FindTreeOf(name)) add_tree(name, S_IFLNK);
  }
  for (const std::string& name : ViewNames()) {
    if (!taken.contains(name) && FindView(name)) add(name, S_IFLNK);
  }
  {
    const MutexLock lock(mutex_);
    if (detections_.size() > 2 * types.size()) detections_.clear();  // Most of them are gone.
  }
  for (size_t i = 0; i < types.size(); ++i) {
    listing->entries.push_back({.name = listing->names[i], .type = types[i]});
  }
  return listing;
}

}  // namespace ckptfs
