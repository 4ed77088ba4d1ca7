#include "parser/folder_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/base/part_name.h"
#include "parser/codec/json_document.h"
#include "parser/detect.h"
#include "parser/format.h"
#include "parser/format/common/diagnose.h"
#include "parser/io/folder.h"

namespace ckptfs {
namespace {

// A listing of more files is not searched: opening each of them takes long.
constexpr size_t kMostLookedAt = 1000;

// Detects the format of the file `name`; returns null if there is none or the file cannot be read.
// Stores the first "permission denied" in `refusal`. Throws transient errors, and ESTALE if a
// server has another file than it has listed.
const Format* FormatIn(const Folder& folder, const std::string& name,
                       std::optional<Error>& refusal) try {
  const ByteSourcePtr file = folder.Open(name);
  return DetectFormat(*file);
} catch (const Error& e) {
  const bool is_another = e.code() == ESTALE && folder.is_remote();
  if (IsTransient(e.code()) || is_another) throw WithContext(name, e);
  if (e.code() == EACCES && !refusal) refusal.emplace(WithContext(name, e));
  return nullptr;
}

// Whether `name` is that of a sidecar, which has the tensors of another file: see
// format/torch/storage.h. `files` are sorted.
bool IsSidecar(const std::string& name, std::span<const std::string> files) {
  constexpr std::string_view kEnding = ".tensors";
  return name.ends_with(kEnding) &&
         std::ranges::binary_search(files, name.substr(0, name.size() - kEnding.size()));
}

// Whether the suffix of a file says neither that it is a checkpoint nor that it is none.
bool HasUnknownSuffix(std::string_view name) {
  constexpr std::string_view kOther[] = {".json", ".md",   ".txt",     ".py",    ".yaml", ".yml",
                                         ".jpg",  ".jpeg", ".png",     ".html",  ".csv",  ".log",
                                         ".h5",   ".onnx", ".msgpack", ".model", ".jinja"};
  return !IsCalledCheckpoint(name) && std::ranges::none_of(kOther, [&](std::string_view ending) {
    return name.ends_with(ending);
  });
}

// Files of the Trainer of transformers and of accelerate that contain no weights.
bool IsOfTrainer(std::string_view name) {
  constexpr std::string_view kNames[] = {"training_args.bin", "scheduler.pt", "scheduler.bin",
                                         "scaler.pt"};
  return std::ranges::count(kNames, name) != 0;
}

// The parsed name of a file with weights: "pytorch_model.fp16.bin" is the model "model" as ".bin"
// in the variant "fp16".
struct WeightsName {
  explicit WeightsName(std::string_view name) {
    constexpr std::string_view kSuffixes[] = {".safetensors", ".bin", ".pt", ".pth", ".ckpt"};
    constexpr std::string_view kVariants[] = {".fp16", ".bf16", ".fp32", ".non_ema", ".ema"};
    constexpr std::string_view kPrefix = "pytorch_";
    if (const size_t index = name.find(".index."); index != std::string_view::npos) {
      name = name.substr(0, index);
    }
    for (const std::string_view ending : kSuffixes) {
      if (!name.ends_with(ending)) continue;
      suffix = ending;
      name.remove_suffix(ending.size());
      break;
    }
    for (const std::string_view ending : kVariants) {
      if (suffix.empty() || !name.ends_with(ending)) continue;
      variant = ending;
      name.remove_suffix(ending.size());
    }
    if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
    stem = name;
  }

  bool is_safetensors() const { return suffix == ".safetensors"; }

  // Of two files with the same model the lesser one is read.
  auto rank() const { return std::pair(!is_safetensors(), !variant.empty()); }

  std::string_view stem;
  std::string_view suffix;  // Empty: no name of weights.
  std::string_view variant;
};

// Whether both names are those of the same weights: in another precision, or of which one is in
// safetensors.
bool AreTwins(const WeightsName& a, const WeightsName& b) {
  if (a.stem != b.stem || a.suffix.empty() || b.suffix.empty()) return false;
  return a.suffix == b.suffix || a.is_safetensors() || b.is_safetensors();
}

// Adds `found`, which replaces a checkpoint with the same weights, or becomes a twin of it.
void Add(std::vector<FolderCheckpoint>& checkpoints, FolderCheckpoint found) {
  for (FolderCheckpoint& other : checkpoints) {
    const WeightsName name(found.name);
    if (!AreTwins(name, WeightsName(other.name))) continue;
    if (name.rank() < WeightsName(other.name).rank()) found.name.swap(other.name);
    other.twins.push_back(std::move(found.name));
    return;
  }
  checkpoints.push_back(std::move(found));
}

// Returns the checkpoint with an index, if there is one.
std::optional<FolderCheckpoint> FindIndexed(const Folder& folder,
                                            std::span<const std::string> files) {
  for (const FolderFormat* format : FolderFormats()) {
    std::string index = format->find(folder, files);
    if (!index.empty()) return FolderCheckpoint{.format = format, .name = std::move(index)};
  }
  return std::nullopt;
}

// Reads one checkpoint of a folder.
Checkpoint ReadOne(const FolderPtr& folder, const FolderCheckpoint& what,
                   const ReadOptions& options) try {
  if (what.format != nullptr) return ReadCheckpoint(*what.format, *folder, what.name, options);
  const Source source{.file = folder->Open(what.name), .folder = folder, .file_name = what.name};
  Checkpoint checkpoint = ReadFile(source, options);
  if (IsOneOfSeveral(what.name)) {
    checkpoint.warnings.push_back(
        fmt::format("incomplete checkpoint: only {} found, without its index", Quoted(what.name)));
  }
  return checkpoint;
} catch (const Error& e) {
  throw WithContext(what.name, e);
}

// The same, and records which files it consists of.
Checkpoint ReadOnly(const std::shared_ptr<const WatchedFolder>& folder,
                    const FolderCheckpoint& what, const ReadOptions& options) {
  Checkpoint checkpoint = ReadOne(folder, what, options);
  checkpoint.parts = folder->Opened();
  if (what.format != nullptr) checkpoint.parts.push_back(what.name);
  return checkpoint;
}

bool HasTensor(const Group& group) {
  return std::ranges::any_of(group.members, [](const Member& member) {
    return std::visit(
        Overloaded{[](const std::unique_ptr<Group>& child) { return HasTensor(*child); },
                   [](const Tensor&) { return true; }, [](const Value&) { return false; },
                   [](const Table&) { return false; }},
        member.content);
  });
}

// Whether a file is a part of a checkpoint, by its name.
bool IsCalledPart(std::string_view name) {
  constexpr std::string_view kOpenVino = "openvino_";  // Its ".bin" has another format.
  constexpr std::string_view kMetadata = ".metadata";  // Of a distributed checkpoint.
  return (IsCalledCheckpoint(name) && !name.starts_with(kOpenVino)) || name == kMetadata ||
         name.ends_with(".memmap");
}

// Whether a folder below `folder` contains a part of a checkpoint. Looks into `most` of them, and
// counts down. One to which access is denied, such as lost+found, contains none.
bool HasCheckpointBelow(const Folder& folder, int& most, int depth = 3) {
  for (const std::string& name : folder.ListFolders()) {
    if (name.starts_with('.')) continue;
    if (--most < 0) return false;
    try {
      const FolderPtr below = folder.OpenFolder(name);
      if (below == nullptr) continue;
      if (std::ranges::any_of(below->List(), IsCalledPart)) return true;
      if (depth > 1 && HasCheckpointBelow(*below, most, depth - 1)) return true;
    } catch (const Error& e) {
      if (e.code() != EACCES) throw;
    }
  }
  return false;
}

bool HasCheckpointBelow(const Folder& folder) {
  int most = folder.is_remote() ? 20 : 200;  // Each costs a request.
  return HasCheckpointBelow(folder, most);
}

// Whether `found` is all there is in `folder` and below.
bool IsOnly(const Folder& folder, const FolderCheckpoint& found) {
  return found.format != nullptr || !HasCheckpointBelow(folder);
}

[[noreturn]] void FailForSeveral(std::span<const FolderCheckpoint> found, bool are_all) {
  std::vector<std::string> names;
  for (const FolderCheckpoint& checkpoint : found) names.push_back(checkpoint.name);
  Fail(ENOTUNIQ, "directory with {}{} checkpoints, {}: name the one to mount",
       are_all ? "" : "at least ", names.size(), Listed(names));
}

// Reads the only one of several checkpoints that has tensors. One that cannot be read may have
// some.
Checkpoint ReadOneWithTensors(const FolderPtr& folder, std::span<const FolderCheckpoint> found,
                              const ReadOptions& options) {
  std::optional<Checkpoint> only;
  for (const FolderCheckpoint& candidate : found) {
    try {
      const auto watched = std::make_shared<const WatchedFolder>(folder);
      Checkpoint checkpoint = ReadOnly(watched, candidate, options);
      if (!HasTensor(checkpoint.root)) continue;
      if (only) FailForSeveral(found, true);
      only = std::move(checkpoint);
    } catch (const Error& e) {
      if (IsTransient(e.code())) throw;
      FailForSeveral(found, true);
    }
  }
  if (!only) FailForSeveral(found, true);
  return *std::move(only);
}

// Adds a warning about files of `folder` that look like parts of another checkpoint.
void WarnOfLeftOut(const WatchedFolder& folder, std::span<const std::string> files,
                   std::span<const std::string> twins, Checkpoint& checkpoint) {
  std::vector<std::string> left_out = folder.LeftOut(files);
  std::erase_if(left_out, [&](const std::string& name) {
    return IsOfTrainer(name) || std::ranges::count(twins, name) != 0;
  });
  if (left_out.empty()) return;
  checkpoint.warnings.push_back(
      fmt::format("ignores {}, which may hold other tensors: mount {} separately", Listed(left_out),
                  left_out.size() == 1 ? "it" : "them"));
}

// Records which files have the same model.
void Annotate(Checkpoint& checkpoint, std::span<const std::string> twins) {
  if (twins.empty()) return;
  std::string list = "[";
  for (const std::string& name : twins) {
    json::AppendString(list, name);
    list += ',';
  }
  list.back() = ']';
  checkpoint.annotations.emplace_back("twins", std::move(list));
}

}  // namespace

bool IsOfDistributed(std::string_view name) { return name.ends_with(".distcp"); }

bool IsOneOfSeveral(std::string_view name) {
  if (IsOfDistributed(name)) return true;
  constexpr std::string_view kDigits = "0123456789";
  constexpr std::string_view kOf = "-of-";
  const size_t of = name.find(kOf);
  if (of == std::string_view::npos || of == 0) return false;
  if (kDigits.find(name[of - 1]) == std::string_view::npos) return false;
  std::string_view count = name.substr(of + kOf.size());
  count = count.substr(0, count.find_first_not_of(kDigits));
  count.remove_prefix(std::min(count.find_first_not_of('0'), count.size()));
  return !count.empty() && count != "1";
}

std::vector<FolderCheckpoint> FindCheckpoints(const Folder& folder,
                                              std::span<const std::string> files, size_t most) {
  std::vector<FolderCheckpoint> checkpoints;
  std::optional<FolderCheckpoint> indexed = FindIndexed(folder, files);
  if (indexed) {
    const WeightsName name(indexed->name);
    for (const std::string& file : files) {
      if (file != indexed->name && AreTwins(name, WeightsName(file)))
        indexed->twins.push_back(file);
    }
    const auto better = std::ranges::find_if(indexed->twins, [&](const std::string& twin) {
      return WeightsName(twin).rank() < name.rank() && !twin.ends_with(".json");
    });
    if (better != indexed->twins.end()) {
      std::swap(indexed->name, *better);
      indexed->format = nullptr;
    }
    checkpoints.push_back(*std::move(indexed));
    return checkpoints;
  }
  const auto searched = files.first(std::min(files.size(), kMostLookedAt));
  std::vector<FolderCheckpoint> archives;  // These may contain checkpoints, or other files.
  std::optional<Error> refusal;
  const auto search = [&](bool (*is_searched)(std::string_view name)) {
    for (const std::string& name : searched) {
      if (name.starts_with('.') || IsOfDistributed(name) || IsSidecar(name, files)) continue;
      if (!is_searched(name)) continue;
      const Format* format = FormatIn(folder, name, refusal);
      if (format != nullptr) Add(format->is_archive ? archives : checkpoints, {.name = name});
      if (checkpoints.size() >= most) return;
    }
  };
  if (!folder.is_remote()) {
    search([](std::string_view) { return true; });
  } else {
    // Each file costs a request.
    search(IsCalledCheckpoint);
    if (checkpoints.empty()) search(HasUnknownSuffix);
  }
  if (checkpoints.size() >= most) return checkpoints;
  if (searched.size() < files.size() && checkpoints.size() < 2) return {};
  if (checkpoints.size() > 1) {
    std::vector<FolderCheckpoint> others = checkpoints;
    std::erase_if(others, [](const FolderCheckpoint& one) { return IsOfTrainer(one.name); });
    if (!others.empty()) checkpoints.swap(others);
  }
  if (checkpoints.empty()) checkpoints.swap(archives);
  if (checkpoints.empty() && refusal) throw Error(*refusal);
  return checkpoints;
}

bool IsOneCheckpoint(const Folder& folder) {
  const std::vector<FolderCheckpoint> found = FindCheckpoints(folder, folder.List(), 2);
  return found.size() == 1 && IsOnly(folder, found.front());
}

Checkpoint ReadFolder(const FolderPtr& folder, const ReadOptions& options) {
  constexpr size_t kMost = 16;
  const auto watched = std::make_shared<const WatchedFolder>(folder);
  const std::vector<std::string> files = watched->List();
  const std::vector<FolderCheckpoint> found = FindCheckpoints(*folder, files, kMost);
  if (found.empty() && files.size() > kMostLookedAt) {
    Fail(ENOTUNIQ, "directory of {} files, not a known sharded checkpoint: name the file to mount",
         files.size());
  }
  if (found.empty() && HasCheckpointBelow(*folder)) {
    Fail(ENOTUNIQ, "directory with checkpoints in its subfolders: name the one to mount");
  }
  if (found.empty()) {
    const std::string_view what = DiagnoseUnknownFolder(files);
    Fail(ENOTSUP, "directory without a checkpoint in a supported format{}{}{}{}",
         files.empty() ? "" : ", but with ", Listed(files), what.empty() ? "" : ": ", what);
  }
  if (found.size() >= kMost) FailForSeveral(found, false);
  if (found.size() > 1) return ReadOneWithTensors(folder, found, options);
  const FolderCheckpoint& only = found.front();
  if (!IsOnly(*folder, only)) {
    Fail(ENOTUNIQ, "directory with {} and checkpoints in subfolders: name the one to mount",
         Quoted(only.name));
  }
  Checkpoint checkpoint = ReadOnly(watched, only, options);
  Annotate(checkpoint, only.twins);
  WarnOfLeftOut(*watched, only.format == nullptr ? std::span<const std::string>() : files,
                only.twins, checkpoint);
  return checkpoint;
}

bool IsDiffusersComponent(const Folder& folder) try {
  constexpr uint64_t kMostConfig = uint64_t{1} << 20U;  // Bytes.
  constexpr const char* kConfig = "config.json";
  const auto info = folder.Find(kConfig);
  if (!info || info->is_folder || info->size > kMostConfig) return false;
  const ByteSourcePtr file = folder.Open(kConfig);
  if (file->size() > kMostConfig) return false;
  Budget budget = Budget::ForFile(file->size());
  const auto config = json::Document::Of({file, 0, file->size()}, budget);
  return config.root().Find("_class_name").has_value();
} catch (const Error& e) {
  if (IsTransient(e.code())) throw;
  return false;
}

}  // namespace ckptfs
