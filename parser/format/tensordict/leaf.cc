#include "parser/format/tensordict/leaf.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "parser/base/encoding.h"
#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/io/simple_sources.h"

namespace ckptfs::tensordict {
namespace {

constexpr std::string_view kSuffix = ".memmap";
constexpr std::string_view kSizesSuffix = ".shape.memmap";

// Opens `key` + `suffix`, encoded or not; `open` opens a name in a directory.
template <typename Open>
auto OpenKey(std::string_view key, std::string_view suffix, const Directory& directory,
             const Open& open) {
  const std::string encoded = EncodeKey(key);
  auto found = open(directory, encoded + std::string(suffix));
  if (found || encoded == key) return found;

  const Directory* parent = &directory;
  std::unique_ptr<Directory> below;
  for (size_t slash = key.find('/'); slash != std::string_view::npos; slash = key.find('/')) {
    below = parent->Below(std::string(key.substr(0, slash)));
    if (below == nullptr) return found;
    parent = below.get();
    key.remove_prefix(slash + 1);
  }
  return open(*parent, std::string(key) + std::string(suffix));
}

std::optional<Record> OpenFile(std::string_view key, std::string_view suffix,
                               const Directory& directory) {
  return OpenKey(key, suffix, directory,
                 [](const Directory& d, const std::string& name) { return d.Open(name); });
}

// Sets the data of `tensor`, whose type and shape are set, to the first bytes of `record`.
void SetBytes(const std::optional<Record>& record, std::string_view name, Tensor& tensor) {
  const uint64_t need = ByteSize(tensor.dtype, tensor.shape);
  tensor.data = {.source = nullptr, .offset = 0, .length = need};
  if (!record) {
    if (need > 0) Fail(EBADMSG, "no such file: {}", Quoted(name));
    tensor.data.source = std::make_shared<MemorySource>("");
    return;
  }
  tensor.member = record->member;
  record->Check();
  const uint64_t length = record->data.length;
  if (length < need) {
    Fail(EBADMSG, "its file: size mismatch (found {} bytes, dtype and shape need {})", length,
         need);
  }
  if (length > need) tensor.annotations.emplace_back("file_bytes", std::to_string(length));
  tensor.data.source = record->data.source;
  tensor.data.offset = tensor.file_offset = record->data.offset;
  tensor.is_in_file = record->is_in_file;
}

// Returns the number of elements of all tensors whose shapes are the rows of `sizes`.
uint64_t CountElements(const Tensor& sizes, Budget& budget) {
  const uint64_t columns = sizes.shape[1];
  if (columns == 0) return sizes.shape[0];
  if (columns > kMaxDimensions) {
    Fail(EBADMSG, "its components have {} dimensions (maximum {})", columns, kMaxDimensions);
  }
  budget.Work(sizes.data.length / sizeof(int64_t));
  std::array<int64_t, 8192> block = {};
  const uint64_t row_bytes = columns * sizeof(int64_t);
  const uint64_t block_bytes = sizeof block / row_bytes * row_bytes;
  uint64_t total = 0;
  for (uint64_t done = 0; done < sizes.data.length; done += block_bytes) {
    const auto length = static_cast<size_t>(std::min(block_bytes, sizes.data.length - done));
    sizes.data.source->ReadAt(sizes.data.offset + done,
                              std::as_writable_bytes(std::span(block)).first(length));
    for (size_t row = 0; row < length / sizeof(int64_t); row += columns) {
      uint64_t product = 1;
      for (const int64_t size : std::span(block).subspan(row, columns)) {
        if (size < 0 || __builtin_mul_overflow(product, static_cast<uint64_t>(size), &product)) {
          Fail(EBADMSG, "the shapes of its components have the invalid size {}", size);
        }
      }
      if (__builtin_add_overflow(total, product, &total)) {
        Fail(EOVERFLOW, "its components have more than 2^64 elements");
      }
    }
  }
  return total;
}

void ReadSizes(std::string_view key, const LeafEntry& entry, const Directory& directory,
               Budget& budget, Tensor& tensor) {
  if (entry.shape.size() != 2) {
    Fail(EBADMSG, "is nested, but its shape has {} dimensions, not 2", entry.shape.size());
  }
  auto sizes = std::make_shared<Tensor>();
  sizes->dtype = Dtype::kInt64;
  sizes->shape = entry.shape;
  const std::string name = EncodeKey(key) + std::string(kSizesSuffix);
  try {
    SetBytes(OpenFile(key, kSizesSuffix, directory), name, *sizes);
  } catch (const Error& e) {
    throw WithContext("its shapes", e);
  }
  tensor.shape = {CountElements(*sizes, budget)};
  tensor.sizes = std::move(sizes);
}

}  // namespace

std::unique_ptr<Directory> DirectoryOf(std::string_view key, const Directory& directory) {
  return OpenKey(key, "", directory,
                 [](const Directory& d, const std::string& name) { return d.Below(name); });
}

void SetType(std::string_view name, const std::vector<uint64_t>& shape, uint64_t length,
             Tensor& tensor) {
  constexpr std::string_view kModule = "torch.";
  const auto dtype =
      name.starts_with(kModule) ? DtypeNamed(name.substr(kModule.size())) : std::optional<Dtype>();
  tensor.shape = shape;
  if (dtype) {
    tensor.dtype = *dtype;
    return;
  }
  tensor.foreign_dtype = name;
  tensor.annotations.emplace_back("stored_dtype", json::String(name));
  tensor.annotations.emplace_back("stored_shape", fmt::format("[{}]", fmt::join(shape, ",")));
  tensor.shape = {length};
}

void ReadLeaf(std::string_view key, const LeafEntry& entry, const Directory& directory,
              Budget& budget, Tensor& tensor) {
  const std::optional<Record> record = OpenFile(key, kSuffix, directory);
  SetType(entry.dtype, entry.shape, record ? record->data.length : 0, tensor);
  if (entry.device != "cpu" && !entry.device.empty()) {
    tensor.annotations.emplace_back("saved_device", json::String(entry.device));
  }
  if (entry.is_nested) ReadSizes(key, entry, directory, budget, tensor);
  if (!record && tensor.dtype == Dtype::kOpaque) {
    Fail(EBADMSG, "no such file: {}", Quoted(EncodeKey(key) + std::string(kSuffix)));
  }
  SetBytes(record, EncodeKey(key) + std::string(kSuffix), tensor);
}

namespace {

constexpr std::string_view kValues = "<NJT_VALUES>";
constexpr std::string_view kOffsets = "<NJT_OFFSETS>";
constexpr std::string_view kLengths = "<NJT_LENGTHS>";

// Returns `leaf` without its prefix, if it has one.
std::string_view KeyOf(std::string_view leaf) {
  for (const std::string_view prefix : {kValues, kOffsets, kLengths}) {
    if (leaf.starts_with(prefix)) return leaf.substr(prefix.size());
  }
  return leaf;
}

// Returns the ragged dimension, which is the item after the padding.
uint64_t RaggedDimension(json::Node offsets) {
  constexpr uint64_t kUsual = 1;
  constexpr size_t kPlace = 5;
  if (!offsets.is_list()) return kUsual;
  json::Items items(offsets);
  size_t place = 0;
  while (const auto item = items.Next()) {
    if (place++ == kPlace) {
      return item->kind() == json::Node::Kind::kWhole ? item->whole() : kUsual;
    }
  }
  return kUsual;
}

}  // namespace

Jagged::Jagged(std::span<const json::Members::Member> leaves, Budget& budget) : tensors_(&budget) {
  for (const auto& [leaf, node] : leaves) {
    const std::string_view key = KeyOf(leaf);
    if (key.size() == leaf.size()) continue;
    Parts& parts = tensors_[key];
    (leaf.starts_with(kValues)    ? parts.values
     : leaf.starts_with(kOffsets) ? parts.offsets
                                  : parts.lengths) = node;
  }
}

const Jagged::Parts* Jagged::Find(std::string_view key) const {
  const auto found = tensors_.find(key);
  return found != tensors_.end() && found->second.values && found->second.offsets ? &found->second
                                                                                  : nullptr;
}

bool Jagged::IsPart(std::string_view leaf) const {
  const std::string_view key = KeyOf(leaf);
  return key.size() != leaf.size() && Find(key) != nullptr;
}

std::optional<Jagged::Composite> Jagged::CompositeOf(std::string_view leaf) const {
  const Parts* parts = leaf.starts_with(kValues) ? Find(KeyOf(leaf)) : nullptr;
  if (parts == nullptr) return std::nullopt;
  Composite composite{.key = KeyOf(leaf),
                      .parts = {{"_values", *parts->values}, {"_offsets", *parts->offsets}},
                      .about = {}};
  if (parts->lengths) composite.parts.emplace_back("_lengths", *parts->lengths);
  const uint64_t dimension = RaggedDimension(*parts->offsets);
  composite.about = {
      {"class", json::String("torch.nested._internal.nested_tensor.NestedTensor")},
      {"layout", json::String("torch.jagged")},
      {"shape", "null"},
      {"is_nested", "true"},
      {"ragged_idx", std::to_string(dimension)},
      {"recipe", json::String(fmt::format(
                     "torch.nested.nested_tensor_from_jagged(_values, _offsets{}, jagged_dim={})",
                     parts->lengths ? ", _lengths" : "", dimension))}};
  return composite;
}

}  // namespace ckptfs::tensordict
