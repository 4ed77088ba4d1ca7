#include "fs/beside.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "parser/base/byte_reader.h"
#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/folder_checkpoint.h"
#include "parser/layer/lazy_file.h"
#include "parser/view/view.h"

namespace ckptfs {
namespace {

// Weights as the libraries of the hub name them, and what marks the directory of a model.
struct Weights {
  std::string_view view;
  std::string_view others;  // The same weights as a pickle.
  std::string_view config;
};

constexpr std::string_view kIndexSuffix = ".index.json";
constexpr Weights kWeights[] = {
    {"model.safetensors", "pytorch_model.bin", "config.json"},
    {"adapter_model.safetensors", "adapter_model.bin", "adapter_config.json"},
    {"diffusion_pytorch_model.safetensors", "diffusion_pytorch_model.bin", "config.json"},
};
constexpr const Weights& kModel = kWeights[0];
constexpr const Weights& kAdapter = kWeights[1];
constexpr const Weights& kDiffusion = kWeights[2];
constexpr std::string_view kPipeline = "model_index.json";

std::string_view StemOf(std::string_view name) { return name.substr(0, name.rfind('.')); }

bool HasFile(std::span<const std::string> files, std::string_view name) {
  return std::ranges::binary_search(files, name);
}

// Whether `file` is the one of safetensors whose tensors are in `root`, and not an archive with
// that in it: its tensors, or without any its header, are the file to its end.
bool IsTiled(const ByteSource& file, const Group& root) {
  uint64_t end = 0;
  for (const Member& member : root.members) {
    const auto* const tensor = std::get_if<Tensor>(&member.content);
    if (tensor == nullptr || !tensor->is_in_file) return false;
    end = std::max(end, tensor->file_offset + tensor->data.length);
  }
  std::array<std::byte, sizeof(uint64_t)> length = {};
  if (root.members.empty() && file.size() >= length.size()) {
    file.ReadAt(0, length);
    end = ByteReader("header", length).Read<uint64_t>("length") + length.size();
  }
  return end == file.size();
}

// Returns the file that `checkpoint` is, if that is the one that its view would be; null if not.
ByteSourcePtr FindThatFile(const Checkpoint& checkpoint, const Source& source,
                           const Options& options) {
  if (checkpoint.format != "safetensors" || !options.subtree.empty()) return nullptr;
  if (source.file ? source.folder == nullptr : checkpoint.parts.size() != 1) return nullptr;
  const std::string& name = source.file ? source.file_name : checkpoint.parts.front();
  const auto info = FindAccessible(*source.folder, name);
  if (!info || info->is_folder) return nullptr;
  ByteSourcePtr file = MakeListedFile(source.folder, name, *info);
  return IsTiled(*file, checkpoint.root) ? file : nullptr;
}

void DescribeLeftOut(Checkpoint& checkpoint, std::string_view name,
                     std::span<const std::string> left_out) {
  if (left_out.empty()) return;
  std::string list;
  for (const std::string& key : left_out) {
    list += list.empty() ? '[' : ',';
    json::AppendString(list, key);
  }
  checkpoint.annotations.emplace_back("view", fmt::format("{{\"left_out\":{}]}}", list));
  checkpoint.warnings.push_back(fmt::format("{} lacks {} tensor{} that safetensors cannot have: {}",
                                            name, left_out.size(), left_out.size() == 1 ? "" : "s",
                                            Listed(left_out)));
}

// Returns the name under which programs look for the weights of the model repository `folder`:
// "model.safetensors". Empty if there is no config.json that makes it one. Throws Error.
std::string ViewNameIn(const Folder& folder) {
  const std::vector<std::string> files = folder.List();
  if (HasFile(files, kAdapter.config)) return std::string(kAdapter.view);
  if (HasFile(files, kDiffusion.config)) {
    const auto has_weights = [&](const Weights& weights) {
      return std::ranges::any_of(files, [&](const std::string& name) {
        return name.starts_with(StemOf(weights.view)) || name.starts_with(StemOf(weights.others));
      });
    };
    // The names suffice, without a request for the file.
    if (has_weights(kDiffusion)) return std::string(kDiffusion.view);
    if (!has_weights(kModel) && IsDiffusersComponent(folder)) return std::string(kDiffusion.view);
  }
  const bool is_model = HasFile(files, kModel.config) || HasFile(files, kPipeline);
  return std::string(is_model ? kModel.view : "");
}

// Returns the name of the view of a file of a model repository with weights: "model.safetensors"
// for "pytorch_model.bin" and for its index. Empty for other files, and without a config.json
// beside it. Throws Error.
std::string ViewNameBeside(const Folder& folder, std::string_view weights) {
  if (weights.ends_with(kIndexSuffix)) weights.remove_suffix(kIndexSuffix.size());
  const auto* const found = std::ranges::find_if(kWeights, [&](const Weights& each) {
    return weights == each.others || weights == each.view;
  });
  const bool is_model =
      found != std::end(kWeights) && FindAccessible(folder, std::string(found->config)).has_value();
  return std::string(is_model ? found->view : "");
}

}  // namespace

std::vector<std::string> ViewNames() {
  std::vector<std::string> names;
  for (const Weights& each : kWeights) names.emplace_back(each.view);
  return names;
}

std::string FindViewInStore(const Folder& folder, const std::string& name) {
  const auto* const found = std::ranges::find(kWeights, name, &Weights::view);
  if (found == std::end(kWeights)) return {};
  const auto has_file = [&](std::string_view file) {
    const auto info = FindAccessible(folder, std::string(file));
    return info && !info->is_folder;
  };
  // Programs would take the shards of an index, which are files.
  if (!has_file(found->config) || has_file(name + std::string(kIndexSuffix))) return {};
  for (const std::string& weights :
       {std::string(found->others), fmt::format("{}{}", found->others, kIndexSuffix)}) {
    if (has_file(weights)) return fmt::format("{}.d/{}", weights, name);
  }
  return {};
}

void AddSafetensorsView(Checkpoint& checkpoint, const Source& source, const Options& options,
                        bool is_in_store, Budget& budget, std::vector<BesideEntry>& beside) {
  if (options.view && !options.view->safetensors) return;
  std::string name;
  if (!source.file) {
    name = ViewNameIn(*source.folder);
  } else if (is_in_store) {
    name = ViewNameBeside(*source.folder, source.file_name);
  }
  if (name.empty() && !options.view) return;
  if (name.empty()) name = kModel.view;
  if (ByteSourcePtr file = FindThatFile(checkpoint, source, options)) {
    beside.push_back({.name = std::move(name), .file = std::move(file), .entries = {}});
    return;
  }
  SafetensorsView view = MakeSafetensorsView(checkpoint, budget);
  if (view.file == nullptr) {
    checkpoint.warnings.push_back(
        fmt::format("no {}: its header would exceed the 100 MB of the format", name));
    return;
  }
  DescribeLeftOut(checkpoint, name, view.left_out);
  beside.push_back({.name = std::move(name), .file = std::move(view.file), .entries = {}});
}

namespace {

constexpr size_t kMostCompanions = 10'000;
constexpr int kMostDepth = 8;

// Remote subfolders whose listing may take a request.
constexpr int kMostRemoteSubfolders = 20;

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

  bool are_all() const { return count_ <= kMostCompanions && remote_ <= kMostRemoteSubfolders; }

 private:
  bool Count() { return ++count_ <= kMostCompanions; }

  bool CountFolder(const Folder& folder) {
    if (folder.is_remote() && !folder.is_immutable()) ++remote_;
    return remote_ <= kMostRemoteSubfolders;
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
