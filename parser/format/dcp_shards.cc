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

#include "parser/error.h"
#include "parser/folder.h"
#include "parser/format.h"
#include "parser/format/dcp/assembly.h"
#include "parser/format/dcp/losses.h"
#include "parser/format/dcp/metadata.h"
#include "parser/format/dcp/sharding.h"
#include "parser/format/safetensors/header.h"
#include "parser/json.h"

namespace ckptfs {
namespace dcp {
namespace {

constexpr size_t kMostFiles = 10'000;

// The member `key` of the metadata of a header; null if there is none.
const std::string* MetadataOf(const safetensors::Header& header, std::string_view key) {
  const auto found =
      std::ranges::find(header.metadata, key, &std::pair<std::string, std::string>::first);
  return found == header.metadata.end() ? nullptr : &found->second;
}

const std::string* ShardingOf(const safetensors::Header& header) {
  return MetadataOf(header, "DCP_SHARDING_INFO");
}

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
  Budget budget = Budget::ForFile(file->size());
  return ShardingOf(safetensors::ReadHeader(*file, budget)) != nullptr;
} catch (const Error&) {
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

struct File {
  std::string name;
  ByteSourcePtr source;
  safetensors::Header header;
  bool is_sharded = false;    // If not, all of its tensors are whole.
  std::vector<Shard> shards;  // One for each entry of the header, in its order.
};

File ReadShard(std::string name, ByteSourcePtr source, Budget& budget) {
  File file{.name = std::move(name), .source = std::move(source), .header = {}, .shards = {}};
  file.header = safetensors::ReadHeader(*file.source, budget);
  const std::string* sharding = ShardingOf(file.header);
  file.is_sharded = sharding != nullptr;
  const std::vector<Shard> told =
      file.is_sharded ? ReadSharding(*sharding, budget) : std::vector<Shard>();
  for (const safetensors::Entry& entry : file.header.entries) {
    const Shard* shard = FindShard(told, entry.name);
    if (file.is_sharded && shard == nullptr) {
      Fail(EBADMSG, "DCP_SHARDING_INFO does not tell where {} belongs", Quoted(entry.name));
    }
    budget.Charge(sizeof(Shard) + entry.name.size() + entry.shape.size() * sizeof(uint64_t));
    file.shards.push_back(shard != nullptr ? *shard
                                           : Shard{entry.name, entry.name,
                                                   std::vector<uint64_t>(entry.shape.size())});
  }
  return file;
}

// A tensor and where its chunks are told.
struct Whole {
  struct Source {
    const File* file;
    const safetensors::Entry* entry;
  };

  Item item;
  std::vector<Source> sources;  // One for each of its boxes.
  bool is_in_one_file = false;  // A file that is not sharded has it.
  bool is_in_others = false;    // Another such file, too.
};

// All tensors of some files.
class Wholes {
 public:
  explicit Wholes(Budget& budget) : budget_(budget) {}

  // Adds the tensors of a file, which must outlive this.
  void Add(const File& file) {
    const uint32_t number = files_.NumberOf(file.name);
    for (size_t i = 0; i < file.shards.size(); ++i) {
      AddChunk(file, number, file.header.entries[i], file.shards[i]);
    }
  }

  const std::deque<Whole>& all() const { return wholes_; }
  const Names& files() const { return files_; }

 private:
  void AddChunk(const File& file, uint32_t number, const safetensors::Entry& entry,
                const Shard& shard) {
    const uint32_t name = names_.NumberOf(shard.name);
    const Tensor tensor = safetensors::TensorOf(entry, file.header, file.source);
    budget_.Charge(sizeof(Whole::Source) + 2 * (sizeof(Box) + sizeof(Place)) +
                   4 * entry.shape.size() * sizeof(uint64_t));
    if (name == wholes_.size()) {
      budget_.Charge(sizeof(Whole));
      Item& item = wholes_.emplace_back().item;
      item.name = shard.name;
      item.is_tensor = true;
      item.dtype = tensor.dtype;
      item.dtype_name =
          item.dtype == Dtype::kOpaque ? std::string_view(entry.dtype) : Name(item.dtype);
    }
    Whole& whole = wholes_[name];
    whole.is_in_others |= !file.is_sharded && whole.is_in_one_file;
    whole.is_in_one_file |= !file.is_sharded;
    whole.sources.push_back({.file = &file, .entry = &entry});
    whole.item.places.push_back(Place{.file = number,
                                      .offset = file.header.data_offset + entry.begin,
                                      .length = entry.end - entry.begin});
    const auto& sizes = tensor.dtype == Dtype::kOpaque ? entry.shape : tensor.shape;
    whole.item.boxes.push_back({.offsets = shard.offsets, .sizes = sizes});
    Extend(whole.item.shape, whole.item.boxes.back());
  }

  // Makes `shape` so large that `box` is in it. If the box has other dimensions or ends beyond all
  // numbers, it will be found not to be.
  static void Extend(std::vector<uint64_t>& shape, const Box& box) {
    if (shape.empty()) shape.resize(box.sizes.size());
    const size_t axes = std::min({shape.size(), box.sizes.size(), box.offsets.size()});
    for (size_t i = 0; i < axes; ++i) {
      uint64_t end = 0;
      if (__builtin_add_overflow(box.offsets[i], box.sizes[i], &end)) continue;
      shape[i] = std::max(shape[i], end);
    }
  }

  Budget& budget_;
  Names names_{budget_};
  Names files_{budget_};
  std::deque<Whole> wholes_;  // By number of the name.
};

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

Checkpoint Parse(const Folder& folder, const std::string& index) {
  const std::vector<std::string> names = FilesOf(folder.List());
  std::vector<ByteSourcePtr> sources;
  uint64_t size = 0;
  for (const std::string& name : names) {
    sources.push_back(folder.Open(name));
    size += sources.back()->size();
  }
  Budget budget = Budget::ForFile(size);
  Losses losses(budget);
  Checkpoint checkpoint;
  WarnOfGaps(names, checkpoint);
  std::deque<File> files;
  Wholes wholes(budget);
  for (size_t i = 0; i < names.size(); ++i) {
    try {
      files.push_back(ReadShard(names[i], sources[i], budget));
    } catch (const Error& e) {
      if (e.code() == EFBIG) throw WithContext(names[i], e);
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
    checkpoint.notes.emplace_back("dcp_version", json::String(*version));
  }
  return checkpoint;
}

}  // namespace
}  // namespace dcp

extern const FolderFormat dcp_shards_format{
    .name = "dcp_shards", .find = dcp::Find, .is_index = dcp::IsIndex, .parse = dcp::Parse};

}  // namespace ckptfs
