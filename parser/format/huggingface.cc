// The sharded checkpoints of Hugging Face: files of any format, each of which has some of the
// tensors, and an index in JSON that tells which; see huggingface/index.h.
//
// The files are called model-00001-of-00003.safetensors or pytorch_model-00001-of-00003.bin as a
// rule, but only the index counts. A file that is missing or damaged costs its tensors and no
// others.

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/detect.h"
#include "parser/format.h"
#include "parser/format/common/open_files.h"
#include "parser/format/huggingface/index.h"
#include "parser/format/huggingface/merge.h"
#include "parser/io/prefetch.h"

namespace ckptfs {
namespace huggingface {
namespace {

// "model.safetensors.index.json", and "model.safetensors.index.fp16.json" for a variant.
bool IsIndexName(std::string_view name) {
  return !name.starts_with('.') && name.ends_with(".json") &&
         name.find(".index.") != std::string_view::npos;
}

bool IsOfSafetensors(std::string_view name) {
  return name.find(".safetensors.index.") != std::string_view::npos;
}

// Of other frameworks, whose weights may lie in the same directory.
bool IsForeign(std::string_view name) {
  return name.find(".h5.index.") != std::string_view::npos ||
         name.find(".msgpack.index.") != std::string_view::npos;
}

// Where there are two, for safetensors and for pickles, both tell about the same tensors.
std::string Find(const Folder& /*folder*/, std::span<const std::string> files) {
  std::vector<std::string> indexes;
  for (const std::string& name : files) {
    if (IsIndexName(name) && !IsForeign(name)) indexes.push_back(name);
  }
  if (std::ranges::any_of(indexes, IsOfSafetensors)) {
    std::erase_if(indexes, [](const std::string& name) { return !IsOfSafetensors(name); });
  }
  if (indexes.empty()) return {};
  if (indexes.size() > 1) {
    Fail(ENOTSUP, "is a directory with {} indexes of checkpoints, {}: name the one to mount",
         indexes.size(), Listed(indexes));
  }
  return indexes.front();
}

bool IsIndex(std::string_view file, const Probe& probe) {
  const std::string_view head(reinterpret_cast<const char*>(probe.head.data()), probe.head.size());
  const size_t first = head.find_first_not_of(" \t\r\n");
  return IsIndexName(file) && first != std::string_view::npos && head[first] == '{';
}

void Read(size_t number, const std::string& name, const OpenedFile& shard,
          const ReadOptions& options, Merger& merger) {
  if (!shard.file) return merger.AddBroken(number, WithContext(name, *shard.error));
  Checkpoint checkpoint;
  try {
    checkpoint = ReadCheckpoint(shard.file, name, options);
  } catch (const Error& e) {
    // What is spent is so for all other files, too.
    if (IsTransient(e.code()) || options.budget->is_spent()) throw;
    return merger.AddBroken(number, e);
  }
  merger.Add(number, std::move(checkpoint));
}

// Has the files that follow number `i` fetched what will be looked at, before they are read one by
// one.
void TellNext(std::span<const OpenedFile> shards, size_t i) {
  constexpr size_t kAtOnce = 16;
  if (i % kAtOnce != 0) return;
  for (const OpenedFile& shard : shards.subspan(i, std::min(kAtOnce, shards.size() - i))) {
    if (shard.file) PrefetchEnds(*shard.file);
  }
}

Checkpoint Parse(const Folder& folder, const std::string& name, const ReadOptions& options) {
  const ByteSourcePtr file = folder.Open(name);
  Budget& budget = *options.budget;
  budget.Grow(file->size());
  const Index index = ReadIndex(*file, budget);
  const std::vector<OpenedFile> shards = OpenFiles(folder, index.shards);
  Merger merger(index, budget);
  for (size_t i = 0; i < shards.size(); ++i) {
    TellNext(shards, i);
    Read(i, index.shards[i], shards[i], options, merger);
  }
  return merger.Finish();
}

}  // namespace
}  // namespace huggingface

extern const FolderFormat huggingface_format{.name = "huggingface",
                                             .find = huggingface::Find,
                                             .is_index = huggingface::IsIndex,
                                             .parse = huggingface::Parse};

}  // namespace ckptfs
