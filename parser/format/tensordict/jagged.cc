#include "parser/format/tensordict/jagged.h"

#include <fmt/format.h>

#include "parser/base/json.h"

namespace ckptfs::tensordict {
namespace {

constexpr std::string_view kValues = "<NJT_VALUES>";
constexpr std::string_view kOffsets = "<NJT_OFFSETS>";
constexpr std::string_view kLengths = "<NJT_LENGTHS>";

// What follows the prefix that `leaf` has; `leaf` itself if it has none.
std::string_view KeyOf(std::string_view leaf) {
  for (const std::string_view prefix : {kValues, kOffsets, kLengths}) {
    if (leaf.starts_with(prefix)) return leaf.substr(prefix.size());
  }
  return leaf;
}

// The dimension that is ragged, which the item after the padding says.
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
