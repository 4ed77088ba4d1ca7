// A file is matched against each file format, a folder against each folder format. A folder that
// matches none may contain one checkpoint beside a README and a tokenizer; if it contains several,
// the user has to name one.

#include "parser/detect.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/format.h"
#include "parser/format/common/diagnose.h"
#include "parser/io/byte_source.h"
#include "parser/io/folder.h"
#include "parser/io/prefetch.h"

namespace ckptfs {
namespace {

// Whether the first request for `source` did not fetch its tail. The tail of a smaller file costs
// nothing.
bool HasSeparateTail(const ByteSource& source) { return source.size() > kPrefetchedHead; }

// Owns the bytes that a probe points to: the head of a file; and its tail, unless the head of a
// large file identifies the format.
class Sample {
 public:
  explicit Sample(const ByteSource& source)
      : size_(source.size()), head_(std::min<uint64_t>(kProbeHead, size_)) {
    source.ReadAt(0, head_);
    if (HasSeparateTail(source)) format_ = FormatOfHead(probe());
    if (format_ != nullptr) return;
    if (size_ > head_.size()) {
      PrefetchEnds(source);
      tail_.resize(std::min<uint64_t>(kProbeTail, size_));
      source.ReadAt(size_ - tail_.size(), tail_);
    }
    format_ = FormatOf(probe());
  }

  Probe probe() const {
    return {.size = size_, .head = head_, .tail = size_ == head_.size() ? head_ : tail_};
  }

  // Null if none matches.
  const Format* format() const { return format_; }

 private:
  uint64_t size_;
  std::vector<std::byte> head_;
  std::vector<std::byte> tail_;  // Empty if the head is the whole file, or identifies the format.
  const Format* format_ = nullptr;
};

Checkpoint Finished(Checkpoint checkpoint, std::string_view format) {
  if (checkpoint.format.empty()) checkpoint.format = format;
  Validate(checkpoint);
  return checkpoint;
}

Checkpoint ReadFile(const Source& source, const Sample& sample, const ReadOptions& options) {
  const Format* format = sample.format();
  if (format != nullptr) return Finished(format->parse(source, options), format->name);
  const std::string_view what = DiagnoseUnknownFile(sample.probe()).text;
  Fail(ENOTSUP, "not a checkpoint in a supported format{}{}", what.empty() ? "" : ": ", what);
}

// Detects the format of the file `name`; returns null if there is none or the file cannot be read.
// Stores the first "permission denied" in `refusal`. Throws transient errors.
const Format* FormatIn(const Folder& folder, const std::string& name,
                       std::optional<Error>& refusal) try {
  const ByteSourcePtr file = folder.Open(name);
  return Sample(*file).format();
} catch (const Error& e) {
  if (IsTransient(e.code())) throw WithContext(name, e);
  if (e.code() == EACCES && !refusal) refusal.emplace(WithContext(name, e));
  return nullptr;
}

// Removes the sidecars, which have the tensors of another file: see format/torch/storage.h. `names`
// are sorted.
void RemoveSidecars(std::vector<std::string>& names) {
  constexpr std::string_view kEnding = ".tensors";
  const std::vector<std::string> all = names;
  std::erase_if(names, [&](const std::string& name) {
    return name.ends_with(kEnding) &&
           std::ranges::binary_search(all, name.substr(0, name.size() - kEnding.size()));
  });
}

// Returns whether `name` is that of one of several files: "model-00002-of-00003.safetensors".
bool IsOneOfSeveral(std::string_view name) {
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

// Reads the only checkpoint in a folder.
Checkpoint ReadOnly(const FolderPtr& folder, const std::string& name,
                    const ReadOptions& options) try {
  const Source source{.file = folder->Open(name), .folder = folder, .file_name = name};
  Checkpoint checkpoint = ReadFile(source, Sample(*source.file), options);
  if (IsOneOfSeveral(name)) {
    checkpoint.warnings.push_back(
        fmt::format("incomplete checkpoint: only {} found, without its index", Quoted(name)));
  }
  return checkpoint;
} catch (const Error& e) {
  throw WithContext(name, e);
}

// Reads the checkpoint with the index file `index`.
Checkpoint ReadAll(const FolderFormat& format, const Folder& folder, const std::string& index,
                   const ReadOptions& options) try {
  return ReadCheckpoint(format, folder, index, options);
} catch (const Error& e) {
  throw WithContext(index, e);
}

// Adds a warning about files of `folder` that look like parts of another checkpoint.
void WarnOfLeftOut(const WatchedFolder& folder, std::span<const std::string> files,
                   Checkpoint& checkpoint) {
  const std::vector<std::string> left_out = folder.LeftOut(files);
  if (left_out.empty()) return;
  checkpoint.warnings.push_back(
      fmt::format("ignores {}, which may hold other tensors: mount {} separately", Listed(left_out),
                  left_out.size() == 1 ? "it" : "them"));
}

Checkpoint ReadFolder(const FolderPtr& all, const ReadOptions& options) {
  const auto folder = std::make_shared<const WatchedFolder>(all);
  const std::vector<std::string> files = folder->List();
  for (const FolderFormat* format : FolderFormats()) {
    const std::string index = format->find(*folder, files);
    if (index.empty()) continue;
    Checkpoint checkpoint = ReadAll(*format, *folder, index, options);
    WarnOfLeftOut(*folder, files, checkpoint);
    return checkpoint;
  }
  constexpr size_t kMostLookedAt = 1000;
  if (files.size() > kMostLookedAt) {
    Fail(ENOTSUP, "directory of {} files, not a known sharded checkpoint: name the file to mount",
         files.size());
  }
  std::vector<std::string> checkpoints;
  std::vector<std::string> archives;  // These may contain checkpoints, or other files.
  std::optional<Error> refusal;
  for (const std::string& name : files) {
    if (name.starts_with('.')) continue;
    const Format* format = FormatIn(*folder, name, refusal);
    if (format != nullptr) (format->is_archive ? archives : checkpoints).push_back(name);
  }
  if (checkpoints.empty()) checkpoints.swap(archives);
  RemoveSidecars(checkpoints);
  if (checkpoints.size() == 1) {
    Checkpoint checkpoint = ReadOnly(folder, checkpoints.front(), options);
    WarnOfLeftOut(*folder, {}, checkpoint);
    return checkpoint;
  }
  if (checkpoints.empty() && refusal) throw Error(*refusal);
  if (checkpoints.empty()) {
    Fail(ENOTSUP, "directory without a checkpoint in a supported format{}{}",
         files.empty() ? "" : ", but with ", Listed(files));
  }
  Fail(ENOTSUP, "directory with {} checkpoints, {}: name the one to mount", checkpoints.size(),
       Listed(checkpoints));
}

// Calls `read`, metered, with `options` that have a budget.
template <typename Read>
Checkpoint WithBudget(const ReadOptions& options, const Read& read) {
  Budget own;
  ReadOptions budgeted = options;
  if (budgeted.budget == nullptr) budgeted.budget = &own;
  try {
    return Metered(*budgeted.budget, [&] {
      Checkpoint checkpoint = read(budgeted);
      budgeted.budget->CheckTime();
      return checkpoint;
    });
  } catch (const Error& e) {
    if (e.code() == EINTR) budgeted.budget->CheckTime();  // The cause of the cancellation.
    throw;
  }
}

// The folder of a remote file that is open already: it is not requested again.
class FolderOfOpenFile final : public ForwardingFolder {
 public:
  explicit FolderOfOpenFile(const Source& source)
      : ForwardingFolder(source.folder), file_(source.file), file_name_(source.file_name) {}

  ByteSourcePtr Open(const std::string& name) const override {
    return name == file_name_ ? file_ : ForwardingFolder::Open(name);
  }
  ByteSourcePtr OpenData(const std::string& name) const override {
    return name == file_name_ ? file_ : ForwardingFolder::OpenData(name);
  }

 private:
  const ByteSourcePtr file_;
  const std::string file_name_;
};

// Returns `folder` of `source`; one that opens the file again only if it is local, since the links
// of a local folder are checked.
FolderPtr FolderOf(const Source& source, FolderPtr folder) {
  if (!source.file || !source.file->is_remote() || folder == nullptr) return folder;
  return std::make_shared<FolderOfOpenFile>(
      Source{.file = source.file, .folder = std::move(folder), .file_name = source.file_name});
}

Checkpoint Read(const Source& source, const ReadOptions& options) {
  if (!source.file) return ReadFolder(source.folder, options);
  const Sample sample(*source.file);
  for (const FolderFormat* format : FolderFormats()) {
    if (source.folder && format->is_index(source.file_name, sample.probe())) {
      return Finished(format->parse(*source.folder, source.file_name, options), format->name);
    }
  }
  Checkpoint checkpoint = ReadFile(source, sample, options);
  if (IsOneOfSeveral(source.file_name)) {
    checkpoint.warnings.emplace_back(
        "one of several files of a checkpoint: mount their directory for all of it");
  }
  return checkpoint;
}

}  // namespace

const Format* FormatOf(const Probe& probe) {
  const auto formats = Formats();
  const auto found =
      std::ranges::find_if(formats, [&](const Format* f) { return f->matches(probe); });
  return found == formats.end() ? nullptr : *found;
}

const Format* FormatOfHead(const Probe& probe) {
  const auto formats = Formats();
  const auto found = std::ranges::find_if(
      formats, [&](const Format* f) { return f->is_certain != nullptr && f->is_certain(probe); });
  return found == formats.end() ? nullptr : *found;
}

void PrefetchProbe(const ByteSource& file) {
  if (!file.is_remote() || !HasSeparateTail(file)) return;
  std::vector<std::byte> head(std::min<uint64_t>(kProbeHead, file.size()));
  file.ReadAt(0, head);
  if (FormatOfHead({.size = file.size(), .head = head, .tail = {}}) == nullptr) PrefetchEnds(file);
}

Checkpoint ReadCheckpoint(const Format& format, const ByteSourcePtr& file,
                          const ReadOptions& options) {
  return Finished(format.parse({.file = file, .folder = nullptr, .file_name = ""}, options),
                  format.name);
}

Checkpoint ReadCheckpoint(const FolderFormat& format, const Folder& folder,
                          const std::string& index, const ReadOptions& options) {
  return Finished(format.parse(folder, index, options), format.name);
}

Checkpoint ReadCheckpoint(const ByteSourcePtr& file, const ReadOptions& options) {
  return ReadCheckpoint(file, file->name(), options);
}

Checkpoint ReadCheckpoint(const ByteSourcePtr& file, std::string_view name,
                          const ReadOptions& options) try {
  return WithBudget(options, [&](const ReadOptions& budgeted) {
    if (options.budget == nullptr) budgeted.budget->AddFile(StoredSize(*file), file->is_remote());
    return ReadFile({.file = file, .folder = nullptr, .file_name = ""}, Sample(*file), budgeted);
  });
} catch (const Error& e) {
  throw WithContext(name, e);
}

Checkpoint ReadCheckpoint(const Source& source, const ReadOptions& options) try {
  return WithBudget(options, [&](const ReadOptions& budgeted) {
    Budget& budget = *budgeted.budget;
    if (source.file) budget.AddFile(StoredSize(*source.file), source.file->is_remote());
    return Read({.file = source.file,
                 .folder = FolderOf(source, MakeCountedFolder(source.folder, budget)),
                 .file_name = source.file_name},
                budgeted);
  });
} catch (const Error& e) {
  throw WithContext(source.name(), e);
}

}  // namespace ckptfs
