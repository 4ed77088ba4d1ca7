// Distributed checkpoints that PyTorch writes as safetensors files for the tools of Hugging Face
// (HuggingFaceStorageWriter with save_distributed):
//
//   shard-00001-model-00001-of-00002.safetensors    the tensors of the process of rank 0
//   shard-00002-model-00001-of-00002.safetensors    those of the process of rank 1, ...
//
// There is no index. The header of each file contains the offsets of its chunks in their tensors,
// and the size of a tensor follows from all of its chunks. A missing file at the end of a tensor is
// therefore noticed only by the numbers in the names.

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <deque>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/base/text.h"
#include "parser/checkpoint.h"
#include "parser/codec/json_document.h"
#include "parser/format.h"
#include "parser/format/dcp/assembly.h"
#include "parser/format/dcp/metadata.h"
#include "parser/format/safetensors/header.h"
#include "parser/io/byte_source.h"
#include "parser/io/folder.h"
#include "parser/io/simple_sources.h"

namespace ckptfs {
namespace dcp {
namespace {

// A tensor of one file, which is a chunk of a sharded tensor.
struct Shard {
  std::string key;                // Its name in the file.
  std::string name;               // The sharded tensor; equals `key` unless the file specifies it.
  std::vector<uint64_t> offsets;  // In the sharded tensor.
};

std::vector<uint64_t> ReadOffsets(std::string_view key, json::Node list) {
  const auto fail = [&] {
    Fail(EBADMSG, "{} has saved_offsets that are not a list of numbers from 0 to 2^64, {} at most",
         Quoted(key), kMaxDimensions);
  };
  if (!list.is_list() || list.count() > kMaxDimensions) fail();
  std::vector<uint64_t> offsets;
  json::Items items(list);
  while (const auto item = items.Next()) {
    if (item->kind() != json::Node::Kind::kWhole) fail();
    offsets.push_back(item->whole());
  }
  return offsets;
}

Shard ReadShard(std::string_view key, json::Node node) {
  const auto offsets = node.Find("saved_offsets");
  if (!offsets) Fail(EBADMSG, "{} has no saved_offsets", Quoted(key));
  const auto name = node.Find("logical_fqn");
  const bool has_name = name && name->is_text() && !name->text().empty();
  return {.key = std::string(key),
          .name = std::string(has_name ? name->text() : key),
          .offsets = ReadOffsets(key, *offsets)};
}

// Reads the text DCP_SHARDING_INFO of such a file, which is JSON:
//
//   {key: {"saved_offsets": [0, 128], "logical_fqn": name}, ...}
//
// The result is sorted by key and charged to `budget`. Throws Error.
std::vector<Shard> ReadSharding(const std::string& text, Budget& budget) try {
  const auto fail = [] { Fail(EBADMSG, "is not an object with an object for each tensor"); };
  json::Document document(budget);
  json::Read(MemorySource(text), 0, text.size(), budget, document);
  if (!document.root().is_object()) fail();
  std::vector<Shard> shards;
  json::Members members(document.root());
  while (const auto member = members.Next()) {
    if (!member->value.is_object()) fail();
    Shard shard = ReadShard(member->key, member->value);
    budget.Charge(2 * sizeof(Shard) + shard.key.size() + shard.name.size() +
                  shard.offsets.size() * sizeof(uint64_t));
    shards.push_back(std::move(shard));
  }
  std::ranges::sort(shards, {}, &Shard::key);
  return shards;
} catch (const Error& e) {
  throw WithContext("DCP_SHARDING_INFO", e);
}

// Returns the shard with that key; null if it is missing. `shards` are from ReadSharding.
const Shard* FindShard(const std::vector<Shard>& shards, std::string_view key) {
  const auto found = std::ranges::lower_bound(
      shards, key, {}, [](const Shard& shard) { return std::string_view(shard.key); });
  return found == shards.end() || found->key != key ? nullptr : &*found;
}

// Returns the member `key` of the metadata of a header; null if it is missing.
const std::string* MetadataOf(const safetensors::SafetensorsHeader& header, std::string_view key) {
  const auto found =
      std::ranges::find(header.metadata, key, &std::pair<std::string, std::string>::first);
  return found == header.metadata.end() ? nullptr : &found->second;
}

// Returns the text that ReadSharding reads; null if it is missing.
constexpr std::string_view kSharding = "DCP_SHARDING_INFO";

const std::string* ShardingOf(const safetensors::SafetensorsHeader& header) {
  return MetadataOf(header, kSharding);
}

struct ShardFile {
  std::string name;
  ByteSourcePtr source;
  safetensors::SafetensorsHeader header;
  bool is_sharded = false;    // If not, all of its tensors are whole.
  std::vector<Shard> shards;  // One for each entry of the header, in its order.
};

// A tensor and its chunks. Its shape is the smallest that contains all chunks.
struct ShardedTensor {
  struct Source {
    const ShardFile* file;
    const safetensors::TensorEntry* entry;
  };

  Item item;
  std::vector<Source> sources;  // One for each of its boxes.
  bool is_in_one_file = false;  // A file that is not sharded has it.
  bool is_in_others = false;    // Another such file, too.
};

// All tensors of several files.
class ShardedTensors {
 public:
  explicit ShardedTensors(Budget& budget) : budget_(budget) {}

  // Adds the tensors of a file, which must outlive this.
  void Add(const ShardFile& file);

  const std::deque<ShardedTensor>& all() const { return wholes_; }
  const StringTable& files() const { return files_; }

 private:
  void AddChunk(const ShardFile& file, uint32_t number, const safetensors::TensorEntry& entry,
                const Shard& shard);

  Budget& budget_;
  StringTable names_{budget_};
  StringTable files_{budget_};
  std::deque<ShardedTensor> wholes_;  // By number of the name.
};

// Extends `shape` to contain `box`. A box with other dimensions, or one that overflows, is rejected
// later.
void Extend(std::vector<uint64_t>& shape, const Region& box) {
  if (shape.empty()) shape.resize(box.sizes.size());
  const size_t axes = std::min({shape.size(), box.sizes.size(), box.offsets.size()});
  for (size_t i = 0; i < axes; ++i) {
    uint64_t end = 0;
    if (__builtin_add_overflow(box.offsets[i], box.sizes[i], &end)) continue;
    shape[i] = std::max(shape[i], end);
  }
}

// Reads the header of a file, which may have no ShardingOf. Throws Error.
ShardFile ReadShardFile(std::string name, ByteSourcePtr source, Budget& budget) {
  ShardFile file{.name = std::move(name), .source = std::move(source), .header = {}, .shards = {}};
  file.header = safetensors::ReadHeader(*file.source, budget);
  const std::string* sharding = ShardingOf(file.header);
  file.is_sharded = sharding != nullptr;
  const std::vector<Shard> shards =
      file.is_sharded ? ReadSharding(*sharding, budget) : std::vector<Shard>();
  for (const safetensors::TensorEntry& entry : file.header.entries) {
    const Shard* shard = FindShard(shards, entry.name);
    if (file.is_sharded && shard == nullptr) {
      Fail(EBADMSG, "DCP_SHARDING_INFO has no entry for {}", Quoted(entry.name));
    }
    budget.Charge(sizeof(Shard) + entry.name.size() + entry.shape.size() * sizeof(uint64_t));
    file.shards.push_back(shard != nullptr ? *shard
                                           : Shard{entry.name, entry.name,
                                                   std::vector<uint64_t>(entry.shape.size())});
  }
  return file;
}

void ShardedTensors::Add(const ShardFile& file) {
  const uint32_t number = files_.NumberOf(file.name);
  for (size_t i = 0; i < file.shards.size(); ++i) {
    AddChunk(file, number, file.header.entries[i], file.shards[i]);
  }
}

void ShardedTensors::AddChunk(const ShardFile& file, uint32_t number,
                              const safetensors::TensorEntry& entry, const Shard& shard) {
  const uint32_t name = names_.NumberOf(shard.name);
  const Tensor tensor = safetensors::TensorOf(entry, file.header, file.source);
  budget_.Charge(sizeof(ShardedTensor::Source) + 2 * (sizeof(Region) + sizeof(ChunkLocation)) +
                 4 * entry.shape.size() * sizeof(uint64_t));
  if (name == wholes_.size()) {
    budget_.Charge(sizeof(ShardedTensor));
    Item& item = wholes_.emplace_back().item;
    item.name = shard.name;
    item.is_tensor = true;
    item.dtype = tensor.dtype;
    item.dtype_name =
        item.dtype == Dtype::kOpaque ? std::string_view(entry.dtype) : Name(item.dtype);
  }
  ShardedTensor& whole = wholes_[name];
  whole.is_in_others |= !file.is_sharded && whole.is_in_one_file;
  whole.is_in_one_file |= !file.is_sharded;
  whole.sources.push_back({.file = &file, .entry = &entry});
  const ChunkLocation place{.file = number,
                            .offset = file.header.data_offset + entry.begin,
                            .length = entry.end - entry.begin};
  whole.item.places.emplace_back(place);
  const auto& sizes = tensor.dtype == Dtype::kOpaque ? entry.shape : tensor.shape;
  whole.item.boxes.push_back({.offsets = shard.offsets, .sizes = sizes});
  Extend(whole.item.shape, whole.item.boxes.back());
}

constexpr size_t kMostShards = 10'000;

bool IsFile(std::string_view name) {
  return !name.starts_with('.') && name.ends_with(".safetensors");
}

std::vector<std::string> FilesOf(std::vector<std::string> names) {
  std::erase_if(names, [](const std::string& name) { return !IsFile(name); });
  return names;
}

// Whether the beginning of a file, where its metadata are, mentions sharding information. To read
// the headers of all files in a folder takes long.
bool MayBeShard(const ByteSource& file) {
  constexpr uint64_t kBeginning = 64 << 10U;  // Bytes, which come with the first request.
  std::string text(std::min(kBeginning, file.size()), '\0');
  file.ReadAt(0, std::as_writable_bytes(std::span(text)));
  return text.find(kSharding) != std::string::npos;
}

// Returns whether the file `name` contains sharding information. A file that cannot be read does
// not.
bool IsShard(const Folder& folder, const std::string& name) try {
  const ByteSourcePtr file = folder.Open(name);
  if (!MayBeShard(*file)) return false;
  Budget budget = Budget::ForFile(StoredSize(*file));
  return ShardingOf(safetensors::ReadHeader(*file, budget)) != nullptr;
} catch (const Error& e) {
  if (IsTransient(e.code())) throw WithContext(name, e);
  return false;
}

// A single one of them is mounted as a safetensors file.
bool IsShardIndex(std::string_view /*file*/, const Probe& /*probe*/) { return false; }

// Returns the N of "shard-N-..."; nothing for any other name.
std::optional<uint32_t> NumberOf(std::string_view name) {
  constexpr std::string_view kPrefix = "shard-";
  if (!name.starts_with(kPrefix)) return {};
  name.remove_prefix(kPrefix.size());
  return ParseNumber<uint32_t>(name.substr(0, name.find('-')));
}

// Returns the files of `names` that are searched for sharding information. All are shards, or none
// is; those with the writer's names come first.
std::vector<std::string> Searched(std::span<const std::string> names) {
  constexpr size_t kMost = 32;
  std::vector<std::string> files;
  std::vector<std::string> others;
  size_t count = 0;
  for (const std::string& name : names) {
    if (!IsFile(name)) continue;
    if (++count > kMostShards) return {};
    std::vector<std::string>& found = NumberOf(name) > 0 ? files : others;
    if (found.size() < kMost) found.push_back(name);
  }
  std::ranges::move(others, std::back_inserter(files));
  files.resize(std::min(files.size(), kMost));
  return files;
}

std::string FindShards(const Folder& folder, std::span<const std::string> names) {
  const std::vector<std::string> files = Searched(names);
  const auto found =
      std::ranges::find_if(files, [&](const std::string& name) { return IsShard(folder, name); });
  return found == files.end() ? "" : *found;
}

// A gap may be harmless: a process without tensors writes no file.
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
          "shard {} found, but not shard {}, which may have tensors", number, last + 1));
      return;
    }
    last = number;
  }
}

Content ContentOf(const ShardedTensor& whole, std::string_view index, const StringTable& files,
                  LossReport& losses, Budget& budget) {
  if (whole.is_in_others) {
    constexpr std::string_view kWhy = "is in several files, which is ambiguous";
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

Checkpoint ParseShards(const Folder& folder, const std::string& index, const ReadOptions& options) {
  const std::vector<std::string> names = FilesOf(folder.List());
  const std::vector<ByteSourcePtr> sources = OpenAllFiles(folder, names);
  Budget& budget = *options.budget;
  LossReport losses(budget);
  Checkpoint checkpoint;
  WarnOfGaps(names, checkpoint);
  std::deque<ShardFile> files;
  ShardedTensors wholes(budget);
  for (size_t i = 0; i < names.size(); ++i) {
    try {
      files.push_back(ReadShardFile(names[i], sources[i], budget));
    } catch (const Error& e) {
      if (IsFatal(e)) throw WithContext(names[i], e);
      checkpoint.warnings.push_back(
          fmt::format("{}: {}: its tensors are missing", Quoted(names[i]), e.what()));
      continue;
    }
    wholes.Add(files.back());
  }
  if (files.empty()) throw Error(EBADMSG, checkpoint.warnings.back());
  for (const ShardedTensor& whole : wholes.all()) {
    Content content = ContentOf(whole, index, wholes.files(), losses, budget);
    budget.Charge(2 * sizeof(Member) + whole.item.name.size());
    checkpoint.root.members.push_back({{std::string(whole.item.name)}, std::move(content)});
  }
  if (!losses.empty() && std::ranges::all_of(checkpoint.root.members, [](const Member& member) {
        return IsLost(member.content);
      })) {
    throw Error(EBADMSG, losses.First());
  }
  losses.AddTo(checkpoint);
  if (const std::string* version = MetadataOf(files.front().header, "DCP_VERSION")) {
    checkpoint.annotations.emplace_back("dcp_version", json::String(*version));
  }
  return checkpoint;
}

}  // namespace
}  // namespace dcp

extern const FolderFormat dcp_shards_format{.name = "dcp_shards",
                                            .find = dcp::FindShards,
                                            .is_index = dcp::IsShardIndex,
                                            .parse = dcp::ParseShards};

}  // namespace ckptfs
