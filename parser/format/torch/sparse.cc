#include "parser/format/torch/sparse.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/error.h"
#include "parser/format/torch/attributes.h"
#include "parser/format/torch/bare.h"
#include "parser/format/torch/repr.h"
#include "parser/format/torch/tensor.h"

namespace ckptfs::torch {
namespace {

using pickle::ItemsOf;
using pickle::Kind;
using pickle::ObjectOf;
using pickle::Value;
using Values = std::span<const Value>;

// The name that `torch.serialization._get_layout` is given: "torch.sparse_coo".
std::string LayoutOf(const Value& layout) {
  if (pickle::IsObject(layout)) {
    const Values arguments = ItemsOf(ObjectOf(layout).arguments);
    if (arguments.size() == 1 && arguments[0].kind == Kind::kText) {
      return std::string(arguments[0].text());
    }
  }
  return Repr(layout);
}

void ComposeCoo(Values data, Composite& composite) {
  Require(data, 3);
  const std::vector<uint64_t> shape = Numbers(data[2], "size");
  composite.parts = {{"indices", data[0]}, {"values", data[1]}};
  AddShape(composite, shape);
  std::string coalesced;
  if (data.size() > 3 && data[3].kind == Kind::kBool) {
    const bool is_coalesced = data[3].integer != 0;
    composite.about.emplace_back("is_coalesced", is_coalesced ? "true" : "false");
    coalesced = is_coalesced ? ", is_coalesced=True" : "";
  }
  AddText(
      composite, "recipe",
      fmt::format("torch.sparse_coo_tensor(indices, values, {}{})", TupleText(shape), coalesced));
}

// CSR and BSR compress the rows, CSC and BSC the columns; the B is for blocks.
void ComposeCompressed(std::string_view layout, Values data, Composite& composite) {
  constexpr std::string_view kPrefix = "torch.sparse_";
  constexpr std::string_view kByRows[] = {"csr", "bsr"};
  constexpr std::string_view kByColumns[] = {"csc", "bsc"};
  const std::string_view kind = layout.starts_with(kPrefix) ? layout.substr(kPrefix.size()) : "";
  const bool is_by_rows = std::ranges::count(kByRows, kind) != 0;
  if (!is_by_rows && std::ranges::count(kByColumns, kind) == 0) {
    Fail(ENOTSUP, "has the layout {}, which we do not know", Quoted(layout));
  }
  Require(data, 4);
  const std::vector<uint64_t> shape = Numbers(data[3], "size");
  const std::string_view compressed = is_by_rows ? "crow_indices" : "ccol_indices";
  const std::string_view plain = is_by_rows ? "col_indices" : "row_indices";
  composite.parts = {
      {std::string(compressed), data[0]}, {std::string(plain), data[1]}, {"values", data[2]}};
  AddShape(composite, shape);
  AddText(composite, "recipe",
          fmt::format("torch.sparse_{}_tensor({}, {}, values, {})", kind, compressed, plain,
                      TupleText(shape)));
}

}  // namespace

void ComposeSparse(Values arguments, Composite& composite) {
  Require(arguments, 2);
  if (arguments[1].kind != Kind::kTuple) Fail(EBADMSG, "its components are no tuple");
  const std::string layout = LayoutOf(arguments[0]);
  AddText(composite, "layout", layout);
  if (layout == "torch.sparse_coo") {
    ComposeCoo(ItemsOf(arguments[1]), composite);
  } else {
    ComposeCompressed(layout, ItemsOf(arguments[1]), composite);
  }
}

void ComposeNested(Values arguments, Composite& composite) {
  Require(arguments, 4);
  AddText(composite, "layout", "torch.strided");
  composite.about.emplace_back("shape", "null");
  composite.about.emplace_back("is_nested", "true");
  composite.parts = {{"buffer", arguments[0]},
                     {"sizes", arguments[1]},
                     {"strides", arguments[2]},
                     {"offsets", arguments[3]}};
  AddText(composite, "recipe",
          "torch._utils._rebuild_nested_tensor(buffer, sizes, strides, offsets)");
}

void ComposeJagged(Values arguments, Composite& composite) {
  Require(arguments, 1);
  const auto attribute = [&](std::string_view name) {
    const Value* found = AttributeOf(arguments[0], name);
    return found == nullptr ? Value() : *found;
  };
  const Value ragged = attribute("_ragged_idx");
  const int64_t dimension = ragged.kind == Kind::kInt ? ragged.integer : 1;
  const bool has_lengths = attribute("lengths").kind != Kind::kNone;
  AddText(composite, "layout", "torch.jagged");
  composite.about.emplace_back("shape", "null");
  composite.about.emplace_back("is_nested", "true");
  composite.about.emplace_back("ragged_idx", std::to_string(dimension));
  composite.parts = {{"_values", attribute("values")}, {"_offsets", attribute("offsets")}};
  if (has_lengths) composite.parts.push_back({"_lengths", attribute("lengths")});
  const auto has_tensor = [](const Part& part) {
    return TensorFormOf(part.value) != TensorForm::kNone;
  };
  if (!std::ranges::all_of(composite.parts, has_tensor)) return;
  AddText(composite, "recipe",
          fmt::format("torch.nested.nested_tensor_from_jagged(_values, _offsets{}, jagged_dim={})",
                      has_lengths ? ", _lengths" : "", dimension));
}

}  // namespace ckptfs::torch
