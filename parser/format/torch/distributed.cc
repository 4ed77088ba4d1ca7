// A DTensor has a mesh, an array of the ranks of its processes, and for each dimension of the mesh
// a placement: Shard(dim) divides the tensor, Replicate() copies it, Partial(op) has a pending
// reduction. A ShardedTensor, its predecessor, lists the shards of all processes.

#include "parser/format/torch/distributed.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/format/torch/literal.h"
#include "parser/format/torch/python.h"
#include "parser/format/torch/repr.h"
#include "parser/format/torch/tensor.h"

namespace ckptfs::torch {
namespace {

constexpr size_t kMostRanks = 65'536;  // In a mesh.

// The elements of a small tensor of integers. Throws Error.
std::vector<int64_t> IntegersOf(const Value& value, Context& context,
                                std::vector<uint64_t>& shape) {
  if (ClassifyTensor(value) != TensorKind::kDense) Fail(EBADMSG, "its mesh is not a tensor");
  Tensor tensor;
  FillTensor(value, context, tensor);
  const size_t width = ItemSize(tensor.dtype);
  if ((tensor.dtype != Dtype::kInt32 && tensor.dtype != Dtype::kInt64) ||
      tensor.data.length / width > kMostRanks) {
    Fail(EBADMSG, "its mesh is {} bytes of {}", tensor.data.length, Name(tensor.dtype));
  }
  std::vector<std::byte> bytes(tensor.data.length);
  if (!bytes.empty()) tensor.data.source->ReadAt(tensor.data.offset, bytes);
  std::vector<int64_t> integers;
  integers.reserve(bytes.size() / width);
  for (size_t at = 0; at + width <= bytes.size(); at += width) {
    int64_t wide = 0;
    int32_t narrow = 0;
    if (tensor.dtype == Dtype::kInt64) {
      std::memcpy(&wide, &bytes[at], width);
    } else {
      std::memcpy(&narrow, &bytes[at], width);
    }
    integers.push_back(tensor.dtype == Dtype::kInt64 ? wide : narrow);
  }
  shape = tensor.shape;
  return integers;
}

// The offsets that one dimension of a mesh steps through: `shape` and `stride` are tuples, mostly
// of one number each.
std::vector<uint64_t> OffsetsOf(const Value& axis) {
  const Value* shape = AttributeOfObject(axis, "shape");
  const Value* stride = AttributeOfObject(axis, "stride");
  if (shape == nullptr || stride == nullptr) Fail(EBADMSG, "mesh: missing layout");
  const std::vector<uint64_t> sizes = Numbers(*shape, "mesh");
  const std::vector<uint64_t> steps = Numbers(*stride, "mesh");
  if (sizes.size() != steps.size()) Fail(EBADMSG, "mesh: missing layout");
  std::vector<uint64_t> offsets = {0};
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] > kMostRanks || offsets.size() * sizes[d] > kMostRanks || steps[d] > kMostRanks) {
      Fail(EBADMSG, "mesh: more than {} ranks", kMostRanks);
    }
    std::vector<uint64_t> next;
    next.reserve(offsets.size() * sizes[d]);
    for (const uint64_t offset : offsets) {
      for (uint64_t i = 0; i < sizes[d]; ++i) next.push_back(offset + i * steps[d]);
    }
    offsets = std::move(next);
  }
  return offsets;
}

// An array of ranks, as a list in lists.
struct Mesh {
  std::vector<uint64_t> shape;
  std::vector<int64_t> ranks;
};

// Since 2.13: the ranks in one row, and how the dimensions step through it.
Mesh MeshOfLayout(const Value& rank_map, const Value& layout, Context& context) {
  std::vector<uint64_t> row_shape;
  const std::vector<int64_t> row = IntegersOf(rank_map, context, row_shape);
  const Value* axes = AttributeOfObject(layout, "axes");
  if (axes == nullptr || axes->kind != Kind::kTuple || ItemsOf(*axes).size() > kMaxDimensions) {
    Fail(EBADMSG, "mesh: missing layout");
  }
  Mesh mesh;
  std::vector<uint64_t> places = {0};
  for (const Value& axis : ItemsOf(*axes)) {
    const std::vector<uint64_t> offsets = OffsetsOf(axis);
    mesh.shape.push_back(offsets.size());
    if (offsets.size() * places.size() > kMostRanks) {
      Fail(EBADMSG, "mesh: more than {} ranks", kMostRanks);
    }
    std::vector<uint64_t> next;
    for (const uint64_t place : places) {
      for (const uint64_t offset : offsets) next.push_back(place + offset);
    }
    places = std::move(next);
  }
  for (const uint64_t place : places) {
    if (place >= row.size()) Fail(EBADMSG, "mesh: index out of range (found {} ranks)", row.size());
    mesh.ranks.push_back(row[place]);
  }
  return mesh;
}

Mesh MeshOf(const Value& mesh, Context& context) {
  const Value* ranks = AttributeOfObject(mesh, "mesh");
  const Value* rank_map = AttributeOfObject(mesh, "_rank_map");
  const Value* layout = AttributeOfObject(mesh, "_layout");
  if (rank_map != nullptr && layout != nullptr) return MeshOfLayout(*rank_map, *layout, context);
  if (ranks == nullptr) Fail(EBADMSG, "mesh: missing ranks");
  Mesh found;
  found.ranks = IntegersOf(*ranks, context, found.shape);
  return found;
}

void AppendMesh(std::string& out, const Mesh& mesh, size_t dimension, size_t& next) {
  if (dimension == mesh.shape.size()) {
    out += std::to_string(mesh.ranks[next++]);
    return;
  }
  out += '[';
  for (uint64_t i = 0; i < mesh.shape[dimension]; ++i) {
    if (i > 0) out += ", ";
    AppendMesh(out, mesh, dimension + 1, next);
  }
  out += ']';
}

std::string MeshText(const Mesh& mesh) {
  std::string text;
  size_t next = 0;
  if (mesh.ranks.empty()) return "[]";
  AppendMesh(text, mesh, 0, next);
  return text;
}

// Returns the placement as the Python expression that constructs it: "Shard(dim=0)". Nothing if its
// class is unknown.
std::optional<std::string> PlacementText(const Value& placement) {
  if (!pickle::IsObject(placement)) return {};
  const Value& kind = ObjectOf(placement).target;
  if (kind.kind != Kind::kGlobal) return {};
  const std::string_view name = ItemsOf(kind)[1].text();
  const auto number = [&](std::string_view attribute) {
    const Value* found = AttributeOfObject(placement, attribute);
    if (found == nullptr || found->kind != Kind::kInt)
      Fail(EBADMSG, "placement: missing {}", attribute);
    return found->integer;
  };
  if (name == "Replicate") return "Replicate()";
  if (name == "Shard") return fmt::format("Shard(dim={})", number("dim"));
  if (name == "_StridedShard") {
    return fmt::format("_StridedShard(dim={}, split_factor={})", number("dim"),
                       number("split_factor"));
  }
  if (name == "Partial" || name == "_Partial") {
    const Value* operation = AttributeOfObject(placement, "reduce_op");
    constexpr std::string_view kKnown[] = {"sum", "avg", "product", "min", "max"};
    if (operation == nullptr) return "Partial('sum')";
    if (operation->kind != Kind::kText) return {};
    for (const std::string_view known : kKnown) {
      if (operation->text() == known) return fmt::format("Partial('{}')", known);
    }
  }
  return {};
}

Value Attribute(const Value& object, std::string_view name) {
  const Value* found = AttributeOfObject(object, name);
  return found == nullptr ? Value() : *found;
}

}  // namespace

void ComposeDTensor(const Value& state, const std::vector<uint64_t>& shape,
                    const std::vector<uint64_t>& stride, Context& context, Composite& composite) {
  const Value* local = AttributeOf(state, "_local_tensor");
  const Value* spec = AttributeOf(state, "_spec");
  if (local == nullptr || spec == nullptr) Fail(EBADMSG, "DTensor: missing local tensor");
  composite.parts = {{"_local_tensor", *local}};

  const Value device_mesh = Attribute(*spec, "mesh");
  const std::string mesh = MeshText(MeshOf(device_mesh, context));
  composite.about.emplace_back("mesh", mesh);
  const Value names = Attribute(device_mesh, "_mesh_dim_names");
  if (names.kind != Kind::kNone)
    composite.about.emplace_back("mesh_dim_names", json::String(Repr(names)));

  const Value placements = Attribute(*spec, "placements");
  if (placements.kind != Kind::kTuple && placements.kind != Kind::kList) {
    Fail(EBADMSG, "DTensor: missing placements");
  }
  std::string listed;
  std::string code;
  bool is_known = true;
  constexpr uint64_t kMostOfText = 512;  // Bytes, mostly.
  for (const Value& placement : ItemsOf(placements)) {
    context.budget.Charge(kMostOfText);  // Many tensors may share one placement.
    const std::optional<std::string> text = PlacementText(placement);
    is_known = is_known && text.has_value();
    listed += fmt::format("{}{}", listed.empty() ? "" : ",",
                          json::String(text ? *text : Repr(placement)));
    if (text) code += fmt::format("{}{}", code.empty() ? "" : ", ", *text);
  }
  composite.about.emplace_back("placements", fmt::format("[{}]", listed));
  if (!is_known) return;
  const auto named = LiteralOf(names, "", context.budget);
  composite.about.emplace_back(
      "recipe", json::String(fmt::format(
                    "DTensor.from_local(_local_tensor, DeviceMesh('cpu', {}{}{}), [{}], shape={}, "
                    "stride={})",
                    mesh, named ? ", mesh_dim_names=" : "", named.value_or(""), code,
                    TupleText(shape), TupleText(stride))));
}

void ComposeShardedTensor(const Value& state, Budget& budget, Composite& composite) {
  if (state.kind != Kind::kTuple || ItemsOf(state).size() < 2 ||
      ItemsOf(state)[0].kind != Kind::kList) {
    Fail(EBADMSG, "ShardedTensor: missing shards");
  }
  for (const Value& shard : ItemsOf(ItemsOf(state)[0])) {
    composite.parts.push_back(
        {fmt::format("shard{}", composite.parts.size()), Attribute(shard, "tensor")});
  }
  const auto place_of = [&](const Value& metadata) {
    const Value placement = Attribute(metadata, "placement");
    const Value rank = Attribute(placement, "_rank");
    const std::vector<uint64_t> offsets = Numbers(Attribute(metadata, "shard_offsets"), "offset");
    const std::vector<uint64_t> sizes = Numbers(Attribute(metadata, "shard_sizes"), "size");
    std::string place = fmt::format(
        R"({{"offsets":[{}],"sizes":[{}],"rank":{}}})", fmt::join(offsets, ","),
        fmt::join(sizes, ","), rank.kind == Kind::kInt ? std::to_string(rank.integer) : "null");
    budget.Charge(place.size());  // Many shards may share one large place.
    return place;
  };
  const Value all = Attribute(ItemsOf(state)[1], "shards_metadata");
  if (all.kind != Kind::kList) Fail(EBADMSG, "ShardedTensor: missing list of all shards");
  std::string shards;
  for (const Value& metadata : ItemsOf(all)) {
    shards += fmt::format("{}{}", shards.empty() ? "" : ",", place_of(metadata));
  }
  composite.about.emplace_back("shards", fmt::format("[{}]", shards));
  std::string local;
  for (const Value& shard : ItemsOf(ItemsOf(state)[0])) {
    local += fmt::format("{}{}", local.empty() ? "" : ",", place_of(Attribute(shard, "metadata")));
  }
  composite.about.emplace_back("local_shards", fmt::format("[{}]", local));
  composite.about.emplace_back(
      "assembly", json::String("each shard is the part of the whole that local_shards has: "
                               "whole[offsets[0]:offsets[0] + sizes[0], ...] = shard0"));
}

}  // namespace ckptfs::torch
