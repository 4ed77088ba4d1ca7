// Distributed checkpoints that PyTorch writes as files of safetensors, so that the programs of
// Hugging Face could read them (HuggingFaceStorageWriter with save_distributed):
//
//   shard-00001-model-00001-of-00002.safetensors    what the process of rank 0 had
//   shard-00002-model-00001-of-00002.safetensors    what that of rank 1 had, ...
//
// There is no index. Each file tells in its own header where its tensors belong (dcp/sharding.h),
// and how large the whole is follows from all of them. So a file that is missing at the end of a
// tensor is not noticed, but for the numbers in the names.

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/format.h"
#include "parser/format/common/open_files.h"
#include "parser/format/dcp/assembly.h"
#include "parser/format/dcp/losses.h"
#include "parser/format/dcp/metadata.h"
#include "parser/format/dcp/shard_files.h"
#include "parser/format/safetensors/header.h"
#include "parser/io/byte_source.h"
#include "parser/io/folder.h"

namespace ckptfs {
namespace dcp {
namespace {

constexpr size_t kMostFiles = 10'000;

std::vector<std::string> FilesOf(std::span<const std::string> names) {
  std::vector<std::string> files;
  for (const std::string& name : names) {
    if (!name.starts_with('.') && name.ends_with(".safetensors")) files.push_back(name);
  }
  return files;
}

// Whether the file `name` tells where its tensors belong. One that cannot be read does not.
bool IsShard(const Folder& folder, const std::string& name) try {
  const ByteSourcePtr file = folder.Open(name);
  Budget budget = Budget::ForFile(StoredSize(*file));
  return ShardingOf(safetensors::ReadHeader(*file, budget)) != nullptr;
} catch (const Error& e) {
  if (IsTransient(e.code())) throw WithContext(name, e);
  return false;
}

std::string Find(const Folder& folder, std::span<const std::string> names) {
  const std::vector<std::string> files = FilesOf(names);
  if (files.size() > kMostFiles) return {};
  const auto found =
      std::ranges::find_if(files, [&](const std::string& name) { return IsShard(folder, name); });
  return found == files.end() ? "" : *found;
}

// One of them by itself is a file like any other.
bool IsIndex(std::string_view /*file*/, const Probe& /*probe*/) { return false; }

// The N of "shard-N-..."; nothing if that is not the name.
std::optional<uint32_t> NumberOf(std::string_view name) {
  constexpr std::string_view kPrefix = "shard-";
  if (!name.starts_with(kPrefix)) return {};
  name.remove_prefix(kPrefix.size());
  name = name.substr(0, name.find('-'));
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (name.empty() || error != std::errc() || end != name.data() + name.size()) return {};
  return number;
}

// A process without anything to write has no file, so that this may mean nothing.
void WarnOfGaps(const std::vector<std::string>& names, Checkpoint& checkpoint) {
  std::vector<uint32_t> numbers;
  for (const std::string& name : names) {
    if (const auto number = NumberOf(name)) numbers.push_back(*number);
  }
  std::ranges::sort(numbers);
  uint32_t last = 0;
  for (const uint32_t number : numbers) {
    if (number > last + 1) {
      checkpoint.warnings.push_back(fmt::format(
          "there is a shard {}, but no shard {}: what it had is missing, unless it had nothing",
          number, last + 1));
      return;
    }
    last = number;
  }
}

Content ContentOf(const Whole& whole, std::string_view index, const Names& files, Losses& losses,
                  Budget& budget) {
  if (whole.is_in_others) {
    constexpr std::string_view kWhy = "is in several files, and nothing tells which one counts";
    losses.Add(files.TextOf(whole.item.places[0]->file), whole.item.name, kWhy);
    return LostTensor({.dtype = whole.item.dtype, .foreign_dtype = "", .shape = whole.item.shape},
                      kWhy);
  }
  const ReadChunk read = [&](size_t chunk) {
    const auto& [file, entry] = whole.sources[chunk];
    Tensor tensor = safetensors::TensorOf(*entry, file->header, file->source);
    tensor.member = file->name;
    return tensor;
  };
  return AssembleTensor(whole.item, index, files, read, losses, budget);
}

Checkpoint Parse(const Folder& folder, const std::string& index, const ReadOptions& options) {
  const std::vector<std::string> names = FilesOf(folder.List());
  const std::vector<ByteSourcePtr> sources = OpenAllFiles(folder, names);
  Budget& budget = *options.budget;
  Losses losses(budget);
  Checkpoint checkpoint;
  WarnOfGaps(names, checkpoint);
  std::deque<ShardFile> files;
  Wholes wholes(budget);
  for (size_t i = 0; i < names.size(); ++i) {
    try {
      files.push_back(ReadShardFile(names[i], sources[i], budget));
    } catch (const Error& e) {
      if (e.code() == EFBIG || IsTransient(e.code())) throw WithContext(names[i], e);
      checkpoint.warnings.push_back(
          fmt::format("{}: {}: what it has is lost", Quoted(names[i]), e.what()));
      continue;
    }
    wholes.Add(files.back());
  }
  if (files.empty()) throw Error(EBADMSG, checkpoint.warnings.back());
  for (const Whole& whole : wholes.all()) {
    Content content = ContentOf(whole, index, wholes.files(), losses, budget);
    budget.Charge(2 * sizeof(Member) + whole.item.name.size());
    checkpoint.root.members.push_back({{std::string(whole.item.name)}, std::move(content)});
  }
  if (!losses.empty() && std::ranges::all_of(checkpoint.root.members, [](const Member& member) {
        return IsLost(member.content);
      })) {
    throw Error(EBADMSG, losses.First());
  }
  losses.Tell(checkpoint);
  if (const std::string* version = MetadataOf(files.front().header, "DCP_VERSION")) {
    checkpoint.annotations.emplace_back("dcp_version", json::String(*version));
  }
  return checkpoint;
}

}  // namespace
}  // namespace dcp

extern const FolderFormat dcp_shards_format{
    .name = "dcp_shards", .find = dcp::Find, .is_index = dcp::IsIndex, .parse = dcp::Parse};

}  // namespace ckptfs
