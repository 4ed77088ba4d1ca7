#include "parser/format/dcp/shard_files.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "parser/base/error.h"

namespace ckptfs::dcp {
namespace {

// Makes `shape` so large that `box` is in it. If the box has other dimensions or ends beyond all
// numbers, it will be found not to be.
void Extend(std::vector<uint64_t>& shape, const Region& box) {
  if (shape.empty()) shape.resize(box.sizes.size());
  const size_t axes = std::min({shape.size(), box.sizes.size(), box.offsets.size()});
  for (size_t i = 0; i < axes; ++i) {
    uint64_t end = 0;
    if (__builtin_add_overflow(box.offsets[i], box.sizes[i], &end)) continue;
    shape[i] = std::max(shape[i], end);
  }
}

}  // namespace

const std::string* MetadataOf(const safetensors::Header& header, std::string_view key) {
  const auto found =
      std::ranges::find(header.metadata, key, &std::pair<std::string, std::string>::first);
  return found == header.metadata.end() ? nullptr : &found->second;
}

ShardFile ReadShardFile(std::string name, ByteSourcePtr source, Budget& budget) {
  ShardFile file{.name = std::move(name), .source = std::move(source), .header = {}, .shards = {}};
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

void Wholes::Add(const ShardFile& file) {
  const uint32_t number = files_.NumberOf(file.name);
  for (size_t i = 0; i < file.shards.size(); ++i) {
    AddChunk(file, number, file.header.entries[i], file.shards[i]);
  }
}

void Wholes::AddChunk(const ShardFile& file, uint32_t number, const safetensors::Entry& entry,
                      const Shard& shard) {
  const uint32_t name = names_.NumberOf(shard.name);
  const Tensor tensor = safetensors::TensorOf(entry, file.header, file.source);
  budget_.Charge(sizeof(Whole::Source) + 2 * (sizeof(Region) + sizeof(Place)) +
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
  const Place place{.file = number,
                    .offset = file.header.data_offset + entry.begin,
                    .length = entry.end - entry.begin};
  whole.item.places.emplace_back(place);
  const auto& sizes = tensor.dtype == Dtype::kOpaque ? entry.shape : tensor.shape;
  whole.item.boxes.push_back({.offsets = shard.offsets, .sizes = sizes});
  Extend(whole.item.shape, whole.item.boxes.back());
}

}  // namespace ckptfs::dcp
