// Distributed checkpoints of PyTorch (torch.distributed.checkpoint), written by many processes at
// once: a directory with
//
//   __RANK_N.distcp    items, one after another. An item is a file of torch.save by itself, of a
//                      part of a tensor or of a value.
//   .metadata          which tensors and values there are, and where their parts lie; or, of
//   __RANK.metadata    processes that did not talk to each other, one for each
//
// The dicts and lists of the program were flattened before; .metadata mostly tells how.

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/format.h"
#include "parser/format/common/open_files.h"
#include "parser/format/dcp/assembly.h"
#include "parser/format/dcp/files.h"
#include "parser/format/dcp/losses.h"
#include "parser/format/dcp/metadata.h"
#include "parser/format/dcp/tree.h"
#include "parser/format/torch/value.h"
#include "parser/io/folder.h"

namespace ckptfs {
namespace dcp {
namespace {

constexpr std::string_view kIndex = ".metadata";

// The rank in "__RANK.metadata"; nothing if that is not the name.
std::optional<uint32_t> RankOf(std::string_view name) {
  constexpr std::string_view kPrefix = "__";
  if (!name.starts_with(kPrefix) || !name.ends_with(kIndex)) return {};
  name.remove_prefix(kPrefix.size());
  name.remove_suffix(kIndex.size());
  uint32_t rank = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), rank);
  if (name.empty() || error != std::errc() || end != name.data() + name.size()) return {};
  return rank;
}

// Whether a file begins like a pickle of such metadata: with the class that it is an object of.
bool HasMetadata(std::span<const std::byte> head) {
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  return text.starts_with('\x80') && text.find("torch.distributed.") != std::string_view::npos &&
         text.find("Metadata") != std::string_view::npos;
}

bool HasMetadata(const Folder& folder, const std::string& name) {
  const ByteSourcePtr file = folder.Open(name);
  std::vector<std::byte> head(std::min<uint64_t>(file->size(), kProbeHead));
  file->ReadAt(0, head);
  return HasMetadata(head);
}

std::string Find(const Folder& folder, std::span<const std::string> files) {
  const bool has_items =
      std::ranges::any_of(files, [](const std::string& name) { return name.ends_with(".distcp"); });
  for (const std::string& name : files) {
    if (name != kIndex && !RankOf(name)) continue;
    if (has_items || HasMetadata(folder, name)) return name;  // In order: .metadata is the first.
  }
  return {};
}

bool IsIndex(std::string_view file, const Probe& probe) {
  return (file == kIndex || RankOf(file)) && HasMetadata(probe.head);
}

// The files that metadata is in: `index`, or those of all ranks.
std::vector<std::string> IndexesOf(const Folder& folder, const std::string& index) {
  if (index == kIndex) return {index};
  std::vector<std::string> indexes = folder.List();
  std::erase_if(indexes, [](const std::string& name) { return !RankOf(name); });
  std::ranges::stable_sort(indexes, {}, [](const std::string& name) { return *RankOf(name); });
  return indexes;
}

// The metadata of a checkpoint with the pickles that it points into.
class Metadatas {
 public:
  Metadatas(const Folder& folder, const std::vector<std::string>& indexes, Budget& budget)
      : budget_(budget), metadata_(budget) {
    const std::vector<ByteSourcePtr> sources = OpenAllFiles(folder, indexes);
    for (const ByteSourcePtr& source : sources) size_ += source->size();
    constexpr uint64_t kMostBytes = uint64_t{1} << 30;
    if (size_ > kMostBytes) {
      Fail(EFBIG, "its metadata has {} bytes, but the most is {}", size_, kMostBytes);
    }
    for (size_t i = 0; i < indexes.size(); ++i) {
      try {
        Add(*sources[i]);
      } catch (const Error& e) {
        if (indexes.size() == 1) throw;
        throw WithContext(indexes[i], e);
      }
    }
  }

  const Metadata& metadata() const { return metadata_; }
  Names& names() { return metadata_.names; }

  void AddGlobals(torch::Globals& globals) const {
    for (const pickle::Graph& graph : graphs_) globals.Add(graph);
  }

 private:
  void Add(const ByteSource& source) {
    budget_.Grow(source.size());
    budget_.Charge(source.size());
    std::vector<std::byte>& bytes = bytes_.emplace_back(source.size());
    source.ReadAt(0, bytes);
    graphs_.push_back(pickle::Load(bytes, budget_));
    AddMetadata(graphs_.back().root(), metadata_);
  }

  uint64_t size_ = 0;  // Of all files, in bytes.
  Budget& budget_;
  std::deque<std::vector<std::byte>> bytes_;
  std::deque<pickle::Graph> graphs_;
  Metadata metadata_;
};

// Adds what is damaged within an item to the warnings.
void AddWarnings(std::string_view item, std::vector<std::string>& warnings, Budget& budget,
                 Checkpoint& checkpoint) {
  for (const std::string& warning : warnings) {
    checkpoint.warnings.push_back(fmt::format("{}: {}", Quoted(item), warning));
    budget.Charge(checkpoint.warnings.back().size());
  }
  warnings.clear();
}

// The first copy that can be read of a value.
Content ReadValue(const Item& item, std::string_view index, const Names& files,
                  const ReadChunk& read, Losses& losses) {
  std::string why;
  for (size_t i = 0; i < item.places.size(); ++i) {
    try {
      if (!item.places[i]) throw Error(EBADMSG, "it is not told where it is");
      return read(i);
    } catch (const Error& e) {
      if (e.code() == EFBIG || IsTransient(e.code())) throw;
      if (why.empty()) why = e.what();
    }
  }
  const auto& place = item.places.front();
  losses.Add(place ? files.TextOf(place->file) : index, item.name, why);
  return LostValue(why);
}

void AddAnnotations(const Metadata& metadata, Budget& budget, Checkpoint& checkpoint) {
  if (!metadata.version.empty()) {
    checkpoint.annotations.emplace_back("dcp_version", json::String(metadata.version));
  }
  if (metadata.storage_meta.kind != pickle::Kind::kNone) {
    checkpoint.annotations.emplace_back("storage_meta",
                                        torch::ValueOf(metadata.storage_meta, budget).json);
  }
}

Checkpoint Parse(const Folder& folder, const std::string& index, const ReadOptions& options) {
  Budget& budget = *options.budget;
  Metadatas metadatas(folder, IndexesOf(folder, index), budget);
  const Metadata& metadata = metadatas.metadata();
  const Files files(folder, metadata.files);
  torch::Reading reading(budget, {}, options);
  metadatas.AddGlobals(reading.globals);

  Checkpoint checkpoint;
  AddAnnotations(metadata, budget, checkpoint);
  Items items(files, reading);
  std::vector<std::string> warnings;
  Losses losses(budget);
  TreeBuilder tree(checkpoint.root, metadatas.names(), budget);
  size_t left = 0;
  constexpr size_t kAtOnce = 128;
  for (size_t i = 0; i < metadata.items.size(); ++i) {
    const Item& item = metadata.items[i];
    if (i % kAtOnce == 0) {
      const std::span<const Item> rest = std::span(metadata.items).subspan(i);
      files.Prefetch(rest.first(std::min(kAtOnce, rest.size())));
    }
    const ReadChunk read = [&](size_t chunk) { return items.Read(*item.places[chunk], warnings); };
    Content content = item.is_tensor
                          ? AssembleTensor(item, index, metadata.files, read, losses, budget)
                          : ReadValue(item, index, metadata.files, read, losses);
    if (!IsLost(content)) ++left;
    AddWarnings(item.name, warnings, budget, checkpoint);
    tree.Add(item.path, item.name, std::move(content));
  }
  if (left == 0 && !losses.empty()) throw Error(EBADMSG, losses.First());
  tree.Finish();
  losses.Tell(checkpoint);
  reading.Report(checkpoint);
  return checkpoint;
}

}  // namespace
}  // namespace dcp

extern const FolderFormat dcp_format{
    .name = "dcp", .find = dcp::Find, .is_index = dcp::IsIndex, .parse = dcp::Parse};

}  // namespace ckptfs
