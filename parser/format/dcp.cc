// Distributed checkpoints of PyTorch (torch.distributed.checkpoint), written by many processes at
// once: a directory with
//
//   __RANK_N.distcp    items, one after another. An item is a complete file of torch.save, with a
//                      chunk of a tensor or with a value.
//   .metadata          the tensors and values, and the locations of their chunks; or
//   __RANK.metadata    one of these for each process, if they did not communicate
//
// The dicts and lists of the program were flattened; .metadata usually has the original paths.

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/base/text.h"
#include "parser/checkpoint.h"
#include "parser/codec/pickle.h"
#include "parser/format.h"
#include "parser/format/dcp/assembly.h"
#include "parser/format/dcp/files.h"
#include "parser/format/dcp/metadata.h"
#include "parser/format/torch/value.h"
#include "parser/io/folder.h"

namespace ckptfs {
namespace dcp {
namespace {

// Rebuilds the original dicts and lists from flat names. Belongs to one thread.
class TreeBuilder {
 public:
  // All must outlive this. The tree is charged to `budget`.
  TreeBuilder(Group& root, StringTable& names, Budget& budget)
      : root_(root), names_(names), budget_(budget), groups_(&budget) {}

  // Adds `content` at `path`, whose texts are keys of dicts and whose numbers are indexes of lists.
  // If the path is empty or has other keys, adds it to the root as `name`. Throws Error(EFBIG).
  void Add(std::span<const pickle::Value> path, std::string_view name, Content content);

  // Marks lists. Call once, after all items have been added.
  void Finish();

 private:
  // The key of a group: its parent, whether the key is a number, and the number (of the text).
  using Place = std::tuple<const Group*, bool, uint64_t>;

  Group& GroupIn(Group& parent, const pickle::Value& key);

  Group& root_;
  StringTable& names_;
  Budget& budget_;
  std::pmr::map<Place, Group*> groups_;  // All but the root.
};

using pickle::Kind;

bool IsPath(std::span<const pickle::Value> path) {
  return !path.empty() && path.size() <= torch::kMaxDepth &&
         std::ranges::all_of(path, [](const pickle::Value& key) {
           return key.kind == Kind::kText || (key.kind == Kind::kInt && key.integer >= 0);
         });
}

bool IsNumber(const Member& member) { return member.key.kind == Key::Kind::kNumber; }

Group& TreeBuilder::GroupIn(Group& parent, const pickle::Value& key) {
  const bool is_number = key.kind == Kind::kInt;
  const uint64_t what =
      is_number ? static_cast<uint64_t>(key.integer) : names_.NumberOf(key.text());
  const auto [found, is_new] = groups_.try_emplace({&parent, is_number, what});
  if (is_new) {
    auto group = std::make_unique<Group>();
    found->second = group.get();
    Key name = torch::KeyOf(key);
    budget_.Charge(2 * sizeof(Member) + sizeof(Group) + name.text.size());
    parent.members.push_back({std::move(name), std::move(group)});
  }
  return *found->second;
}

void TreeBuilder::Add(std::span<const pickle::Value> path, std::string_view name, Content content) {
  Group* group = &root_;
  Key key{.text = std::string(name)};
  if (IsPath(path)) {
    for (const pickle::Value& step : path.first(path.size() - 1)) {
      budget_.Charge(sizeof(step));  // Many may share a long path.
      group = &GroupIn(*group, step);
    }
    key = torch::KeyOf(path.back());
  }
  budget_.Charge(2 * sizeof(Member) + key.text.size());  // Once more for its files in the tree.
  group->members.push_back({std::move(key), std::move(content)});
}

void TreeBuilder::Finish() {
  for (const auto& [place, group] : groups_) {
    if (!std::ranges::all_of(group->members, IsNumber)) continue;
    group->python_type = "list";
    std::ranges::stable_sort(group->members, HasSmallerNumber);
  }
}

constexpr std::string_view kIndex = ".metadata";

// Returns the rank in "__RANK.metadata"; nothing for any other name.
std::optional<uint32_t> RankOf(std::string_view name) {
  constexpr std::string_view kPrefix = "__";
  if (!name.starts_with(kPrefix) || !name.ends_with(kIndex)) return {};
  name.remove_prefix(kPrefix.size());
  name.remove_suffix(kIndex.size());
  return ParseNumber<uint32_t>(name);
}

// Returns whether a file begins like a pickle of the metadata, which names its class.
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

// Returns the metadata files: `index`, or those of all ranks.
std::vector<std::string> IndexesOf(const Folder& folder, const std::string& index) {
  if (index == kIndex) return {index};
  std::vector<std::string> indexes = folder.List();
  std::erase_if(indexes, [](const std::string& name) { return !RankOf(name); });
  std::ranges::stable_sort(indexes, {}, [](const std::string& name) { return *RankOf(name); });
  return indexes;
}

// The metadata of a checkpoint, with the pickles that it points into.
class MetadataFiles {
 public:
  MetadataFiles(const Folder& folder, const std::vector<std::string>& indexes, Budget& budget)
      : budget_(budget), metadata_(budget) {
    const std::vector<ByteSourcePtr> sources = OpenAllFiles(folder, indexes);
    for (const ByteSourcePtr& source : sources) size_ += source->size();
    constexpr uint64_t kMostBytes = uint64_t{1} << 30;
    if (size_ > kMostBytes) {
      Fail(EFBIG, "its metadata has {} bytes (maximum {})", size_, kMostBytes);
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

  const DcpMetadata& metadata() const { return metadata_; }
  StringTable& names() { return metadata_.names; }

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
  DcpMetadata metadata_;
};

// Adds the warnings about corrupt parts of an item.
void AddWarnings(std::string_view item, std::vector<std::string>& warnings, Budget& budget,
                 Checkpoint& checkpoint) {
  for (const std::string& warning : warnings) {
    checkpoint.warnings.push_back(fmt::format("{}: {}", Quoted(item), warning));
    budget.Charge(checkpoint.warnings.back().size());
  }
  warnings.clear();
}

// Returns the first copy of a value that can be read.
Content ReadValue(const Item& item, std::string_view index, const StringTable& files,
                  const ReadChunk& read, LossReport& losses) {
  std::string why;
  for (size_t i = 0; i < item.places.size(); ++i) {
    try {
      if (!item.places[i]) throw Error(EBADMSG, "its location is missing");
      return read(i);
    } catch (const Error& e) {
      if (IsFatal(e)) throw;
      if (why.empty()) why = e.what();
    }
  }
  const auto& place = item.places.front();
  losses.Add(place ? files.TextOf(place->file) : index, item.name, why);
  return LostValue(why);
}

void AddAnnotations(const DcpMetadata& metadata, Budget& budget, Checkpoint& checkpoint) {
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
  MetadataFiles metadatas(folder, IndexesOf(folder, index), budget);
  const DcpMetadata& metadata = metadatas.metadata();
  const Files files(folder, metadata.files);
  torch::Reading reading(budget, {}, options);
  metadatas.AddGlobals(reading.globals);

  Checkpoint checkpoint;
  AddAnnotations(metadata, budget, checkpoint);
  ItemReader items(files, reading);
  std::vector<std::string> warnings;
  LossReport losses(budget);
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
  losses.AddTo(checkpoint);
  reading.Report(checkpoint);
  return checkpoint;
}

}  // namespace
}  // namespace dcp

extern const FolderFormat dcp_format{
    .name = "dcp", .find = dcp::Find, .is_index = dcp::IsIndex, .parse = dcp::Parse};

}  // namespace ckptfs
