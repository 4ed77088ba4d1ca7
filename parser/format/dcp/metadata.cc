// The pickle holds records, objects of dataclasses whose attributes come with BUILD:
//
//   Metadata               state_dict_metadata {name: TensorStorageMetadata or
//                          BytesStorageMetadata}, planner_data {name: tuple of keys},
//                          storage_data {MetadataIndex: _StorageInfo}, storage_meta, version
//   TensorStorageMetadata  properties, size, chunks [ChunkStorageMetadata]
//   TensorProperties       a tuple: dtype, layout, requires_grad, memory format, pin_memory
//   ChunkStorageMetadata   offsets, sizes
//   BytesStorageMetadata   nothing
//   MetadataIndex          fqn, offset (of the chunk), index
//   _StorageInfo           relative_path, offset, length, transform_descriptors
//   StorageMeta            checkpoint_id, save_id, ...
//
// The classes have moved between modules and gained attributes: a missing attribute is None.

#include "parser/format/dcp/metadata.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <string>
#include <tuple>
#include <utility>

#include "parser/base/error.h"
#include "parser/format/torch/globals.h"
#include "parser/format/torch/python.h"
#include "parser/format/torch/repr.h"
#include "parser/format/torch/tensor.h"

namespace ckptfs::dcp {
namespace {

using pickle::ItemsOf;
using pickle::Kind;
using pickle::ObjectOf;
using pickle::Value;
using Values = std::span<const Value>;

// Returns the name of the class of an object if it is one of PyTorch's, else nothing.
std::string_view ClassOf(const Value& value) {
  if (!pickle::IsObject(value)) return {};
  const Value& target = ObjectOf(value).target;
  if (target.kind != Kind::kGlobal) return {};
  const Values names = ItemsOf(target);
  return names[0].text().starts_with("torch.distributed.") ? names[1].text() : "";
}

// Returns the attribute `name` of a record; None if it is missing. A linear search is cheap, since
// records have few attributes.
Value Attribute(const Value& record, std::string_view name) {
  constexpr size_t kMost = 64;
  const Value state = ObjectOf(record).state();
  if (state.kind == Kind::kNone) return {};
  if (state.kind != Kind::kDict || ItemsOf(state).size() > 2 * kMost) {
    Fail(EBADMSG, "a {} has unknown attributes", ClassOf(record));
  }
  const Value* found = torch::AttributeOf(state, name);
  return found == nullptr ? Value() : *found;
}

// The same for an attribute that must be a dict or None.
Values PairsOf(const Value& record, std::string_view name) {
  const Value value = Attribute(record, name);
  if (value.kind == Kind::kNone) return {};
  if (value.kind != Kind::kDict) Fail(EBADMSG, "{} is not a dict", name);
  return ItemsOf(value);
}

uint64_t NumberOf(const Value& value, std::string_view what) {
  if (value.kind != Kind::kInt || value.integer < 0) {
    Fail(EBADMSG, "its {} is {}, but must be a number from 0 to 2^63", what, torch::Repr(value));
  }
  return static_cast<uint64_t>(value.integer);
}

std::string_view TextOf(const Value& value, std::string_view what) {
  if (value.kind != Kind::kText) Fail(EBADMSG, "its {} is {}", what, torch::Repr(value));
  return value.text();
}

// The location of an item, and its name.
struct Stored {
  uint32_t name = 0;
  std::optional<std::vector<uint64_t>> offset;  // Nothing of a value.
  ChunkLocation place;
};

bool IsLess(const Stored& a, const Stored& b) {
  return std::tie(a.name, a.offset) < std::tie(b.name, b.offset);
}

// Returns the memory of a vector of numbers, including the overhead of malloc.
uint64_t CostOf(const std::vector<uint64_t>& numbers) {
  return numbers.size() * sizeof(uint64_t) + 2 * sizeof(void*);
}

// Adds one pickle.
class Adding {
 public:
  Adding(const Value& root, DcpMetadata& metadata) : root_(root), metadata_(metadata) {}

  void Run() {
    ReadPlaces();
    ReadPaths();
    const Values pairs = PairsOf(root_, "state_dict_metadata");
    for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
      const std::string_view name = TextOf(pairs[i], "name in state_dict_metadata");
      try {
        AddItem(metadata_.names.NumberOf(name), pairs[i + 1]);
      } catch (const Error& e) {
        throw WithContext(Quoted(name), e);
      }
    }
  }

 private:
  void ReadPlaces() {
    const Values pairs = PairsOf(root_, "storage_data");
    metadata_.budget.Charge(pairs.size() / 2 * sizeof(Stored));
    stored_.reserve(pairs.size() / 2);
    for (size_t i = 0; i + 1 < pairs.size(); i += 2)
      stored_.push_back(StoredOf(pairs[i], pairs[i + 1]));
    // The last one of equal keys counts, as in a dict.
    std::ranges::stable_sort(stored_, IsLess);
  }

  Stored StoredOf(const Value& index, const Value& info) {
    if (ClassOf(index) != "MetadataIndex" || ClassOf(info) != "_StorageInfo") {
      Fail(EBADMSG, "storage_data has unknown objects");
    }
    Stored stored;
    stored.name = metadata_.names.NumberOf(TextOf(Attribute(index, "fqn"), "name in storage_data"));
    if (const Value offset = Attribute(index, "offset"); offset.kind != Kind::kNone) {
      stored.offset = torch::Numbers(offset, "offset in storage_data");
      metadata_.budget.Charge(CostOf(*stored.offset));
    }
    ChunkLocation& place = stored.place;
    place.file =
        metadata_.files.NumberOf(TextOf(Attribute(info, "relative_path"), "relative_path"));
    place.offset = NumberOf(Attribute(info, "offset"), "offset in a file");
    place.length = NumberOf(Attribute(info, "length"), "length in a file");
    const Value transforms = Attribute(info, "transform_descriptors");
    if (transforms.kind == Kind::kList || transforms.kind == Kind::kTuple) {
      if (const Values names = ItemsOf(transforms); !names.empty()) {
        place.transform = TextOf(names[0], "transform");
      }
    }
    return stored;
  }

  // Planners other than PyTorch's own may store anything there.
  void ReadPaths() {
    const Value data = Attribute(root_, "planner_data");
    if (data.kind != Kind::kDict) return;
    const Values pairs = ItemsOf(data);
    for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
      if (pairs[i].kind != Kind::kText || pairs[i + 1].kind != Kind::kTuple) continue;
      const uint32_t name = metadata_.names.NumberOf(pairs[i].text());
      if (paths_.size() <= name) Resize(paths_, name, Values());
      paths_[name] = ItemsOf(pairs[i + 1]);
    }
  }

  // Grows `items` for the number of a name and for all numbers assigned so far.
  template <typename T>
  void Resize(std::vector<T>& by_name, uint32_t name, const T& nothing) {
    const size_t size = std::max<size_t>(name + size_t{1}, metadata_.names.size());
    metadata_.budget.Charge((size - by_name.size()) * sizeof(T));
    by_name.resize(size, nothing);
  }

  std::optional<ChunkLocation> PlaceOf(uint32_t name,
                                       std::optional<std::vector<uint64_t>> offset) const {
    const Stored wanted{.name = name, .offset = std::move(offset), .place = {}};
    const auto after = std::ranges::upper_bound(stored_, wanted, IsLess);
    if (after == stored_.begin() || IsLess(*std::prev(after), wanted)) return {};
    return std::prev(after)->place;
  }

  void AddItem(uint32_t name, const Value& value) {
    metadata_.budget.Charge(sizeof(Item));
    Item item;
    item.name = metadata_.names.TextOf(name);
    if (name < paths_.size()) item.path = paths_[name];
    const std::string_view kind = ClassOf(value);
    if (kind == "TensorStorageMetadata") {
      FillTensor(name, value, item);
    } else if (kind == "BytesStorageMetadata") {
      item.places.push_back(PlaceOf(name, std::nullopt));
    } else {
      Fail(EBADMSG, "is {}, but must be metadata of a tensor or of bytes", torch::Repr(value));
    }
    std::vector<uint32_t>& items = metadata_.item_of_name;
    if (items.size() <= name) Resize(items, name, DcpMetadata::kNoItem);
    if (items[name] == DcpMetadata::kNoItem) {
      items[name] = static_cast<uint32_t>(metadata_.items.size());
      metadata_.items.push_back(std::move(item));
    } else {
      Merge(std::move(item), metadata_.items[items[name]]);
    }
  }

  void FillTensor(uint32_t name, const Value& value, Item& item) {
    item.is_tensor = true;
    FillProperties(Attribute(value, "properties"), item);
    item.shape = torch::Numbers(Attribute(value, "size"), "size");
    metadata_.budget.Charge(CostOf(item.shape));
    const Value chunks = Attribute(value, "chunks");
    if (chunks.kind != Kind::kList) Fail(EBADMSG, "its chunks are not a list");
    // Twice, for the copies made later.
    metadata_.budget.Charge(ItemsOf(chunks).size() * 2 * (sizeof(Region) + sizeof(item.places[0])));
    item.boxes.reserve(ItemsOf(chunks).size());
    item.places.reserve(ItemsOf(chunks).size());
    for (const Value& chunk : ItemsOf(chunks)) {
      if (ClassOf(chunk) != "ChunkStorageMetadata")
        Fail(EBADMSG, "one of its chunks is not a ChunkStorageMetadata");
      Region box{.offsets = torch::Numbers(Attribute(chunk, "offsets"), "offsets"),
                 .sizes = torch::Numbers(Attribute(chunk, "sizes"), "sizes")};
      metadata_.budget.Charge(CostOf(box.offsets) + CostOf(box.sizes));
      item.places.push_back(PlaceOf(name, box.offsets));
      item.boxes.push_back(std::move(box));
    }
  }

  static void FillProperties(const Value& properties, Item& item) {
    const Value state =
        ClassOf(properties) == "TensorProperties" ? ObjectOf(properties).state() : Value();
    if (state.kind != Kind::kTuple || ItemsOf(state).size() < 3) {
      Fail(EBADMSG, "its properties are unknown");
    }
    const Values parts = ItemsOf(state);
    const auto dtype = torch::DtypeOf(parts[0]);
    if (!dtype) Fail(EBADMSG, "unknown dtype {}", torch::Repr(parts[0]));
    item.dtype = *dtype;
    item.dtype_name = ItemsOf(parts[0])[1].text();
    item.requires_grad = parts[2].kind == Kind::kBool && parts[2].integer != 0;
  }

  static void Merge(Item item, Item& known) {
    if (item.is_tensor != known.is_tensor || item.dtype_name != known.dtype_name ||
        item.shape != known.shape) {
      const auto text = [](const Item& i) {
        return i.is_tensor ? fmt::format("{} of [{}]", i.dtype_name, fmt::join(i.shape, ","))
                           : "no tensor";
      };
      Fail(EBADMSG, "is {} here, but {} elsewhere", text(item), text(known));
    }
    if (known.path.empty()) known.path = item.path;
    std::ranges::move(item.boxes, std::back_inserter(known.boxes));
    std::ranges::copy(item.places, std::back_inserter(known.places));
  }

  const Value root_;
  DcpMetadata& metadata_;
  std::vector<Stored> stored_;  // Sorted.
  std::vector<Values> paths_;   // By number of the name; may be empty.
};

}  // namespace

void AddMetadata(const Value& root, DcpMetadata& metadata) {
  if (ClassOf(root) != "Metadata") {
    Fail(EBADMSG, "is {}, but the metadata of a distributed checkpoint is an object of PyTorch's",
         torch::Repr(root));
  }
  if (metadata.version.empty()) {
    if (const Value version = Attribute(root, "version"); version.kind == Kind::kText) {
      metadata.version = version.text();
    }
  }
  if (metadata.storage_meta.kind == Kind::kNone) {
    if (const Value meta = Attribute(root, "storage_meta"); pickle::IsObject(meta)) {
      if (const Value state = ObjectOf(meta).state(); state.kind == Kind::kDict) {
        metadata.storage_meta = state;
      }
    }
  }
  Adding(root, metadata).Run();
}

uint32_t StringTable::NumberOf(std::string_view text) {
  // An empty text may begin at the same address as another one.
  if (!text.empty()) {
    if (const auto known = by_place_.find(text.data()); known != by_place_.end()) {
      return known->second;
    }
  }
  const auto [found, is_new] = by_text_.try_emplace(text, static_cast<uint32_t>(texts_.size()));
  if (is_new) texts_.push_back(text);
  if (!text.empty()) by_place_.emplace(text.data(), found->second);
  return found->second;
}

}  // namespace ckptfs::dcp
