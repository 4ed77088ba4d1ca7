// A file is matched against each file format; folder_checkpoint.cc finds the checkpoint of a
// folder.

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
#include "parser/folder_checkpoint.h"
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
class ProbeBuffer {
 public:
  explicit ProbeBuffer(const ByteSource& source)
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

Checkpoint ReadFile(const Source& source, const ProbeBuffer& buffer, const ReadOptions& options) {
  const Format* format = buffer.format();
  if (format != nullptr) return Finished(format->parse(source, options), format->name);
  const std::string_view what = DiagnoseUnknownFile(buffer.probe()).text;
  Fail(ENOTSUP, "not a checkpoint in a supported format{}{}", what.empty() ? "" : ": ", what);
}

// Calls `read`, metered, with `options` and a budget.
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
    // The cause of the cancellation.
    if (e.code() == EINTR || e.code() == ECANCELED) budgeted.budget->CheckTime();
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

// Returns `folder` of `source`. If it is local, its file is opened again, because the links of a
// local folder are checked.
FolderPtr FolderOf(const Source& source, FolderPtr folder) {
  if (!source.file || !source.file->is_remote() || folder == nullptr) return folder;
  return std::make_shared<FolderOfOpenFile>(
      Source{.file = source.file, .folder = std::move(folder), .file_name = source.file_name});
}

Checkpoint Read(const Source& source, const ReadOptions& options) {
  if (!source.file) return ReadFolder(source.folder, options);
  const ProbeBuffer buffer(*source.file);
  for (const FolderFormat* format : FolderFormats()) {
    if (source.folder && format->is_index(source.file_name, buffer.probe())) {
      return Finished(format->parse(*source.folder, source.file_name, options), format->name);
    }
  }
  Checkpoint checkpoint = ReadFile(source, buffer, options);
  if (IsOneOfSeveral(source.file_name)) {
    checkpoint.warnings.emplace_back(
        "one of several files of a checkpoint: mount their directory for all of it");
  }
  return checkpoint;
}

}  // namespace

bool IsCheckpoint(const Source& source) {
  if (IsOfDistributed(source.file_name)) return false;
  const ProbeBuffer buffer(*source.file);
  return buffer.format() != nullptr ||
         std::ranges::any_of(FolderFormats(), [&](const FolderFormat* format) {
           return format->is_index(source.file_name, buffer.probe());
         });
}

const Format* DetectFormat(const ByteSource& file) { return ProbeBuffer(file).format(); }

Checkpoint ReadFile(const Source& source, const ReadOptions& options) {
  return ReadFile(source, ProbeBuffer(*source.file), options);
}

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
  const Format* format = FormatOfHead({.size = file.size(), .head = head, .tail = {}});
  if (format == nullptr || format->begins_with_tail) PrefetchEnds(file);
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
    return ReadFile({.file = file, .folder = nullptr, .file_name = ""}, ProbeBuffer(*file),
                    budgeted);
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
