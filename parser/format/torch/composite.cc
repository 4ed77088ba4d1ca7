// The arguments of the constructors of composite tensors:
//
//   _rebuild_sparse_tensor             COO: layout, (indices, values, size[, is_coalesced]); else:
//                                      layout, (compressed indices, plain indices, values, size)
//   _rebuild_nested_tensor             buffer, sizes, strides, offsets
//   _rebuild_njt                       keyword arguments: values, offsets, lengths, ...
//   _rebuild_qtensor                   storage, offset, size, stride, (scheme, scales, zero points,
//                                      axis), requires_grad, hooks
//   _rebuild_wrapper_subclass          class, dtype, size, stride, storage offset, layout, device,
//                                      requires_grad; the state that comes with it has the tensors
//   _rebuild_meta_tensor_no_storage    dtype, size, stride, requires_grad
//   _mareconstruct                     class, ndarray, ...; see numpy.cc for the state

#include "parser/format/torch/composite.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/format/torch/children.h"
#include "parser/format/torch/distributed.h"
#include "parser/format/torch/globals.h"
#include "parser/format/torch/literal.h"
#include "parser/format/torch/numpy.h"
#include "parser/format/torch/python.h"
#include "parser/format/torch/repr.h"
#include "parser/format/torch/tensor.h"
#include "parser/format/torch/value.h"

namespace ckptfs::torch {
namespace {

void AddShape(Composite& composite, const std::vector<uint64_t>& shape) {
  composite.about.emplace_back("shape", fmt::format("[{}]", fmt::join(shape, ",")));
}

// For messages: all tensors with an invalid quantizer may share a long one.
std::string ShortRepr(const Value& value) {
  constexpr size_t kMost = 128;  // Bytes.
  return Repr(value).substr(0, kMost);
}

void ComposeQuantized(const Value& value, Values arguments, Context& context,
                      Composite& composite) {
  Require(arguments, 5);
  const Value& quantizer = arguments[4];
  if (quantizer.kind != Kind::kTuple || ItemsOf(quantizer).size() != 4) {
    Fail(EBADMSG, "its quantizer {} is not a tuple of 4", ShortRepr(quantizer));
  }
  const Values parts = ItemsOf(quantizer);
  if (parts[3].kind != Kind::kInt) {
    Fail(EBADMSG, "invalid axis {}", ShortRepr(parts[3]));
  }
  const Dtype dtype = StorageOf(arguments[0], context).type.dtype;
  const std::vector<uint64_t> shape = Numbers(arguments[2], "size");
  AddShape(composite, shape);
  AddText(composite, "dtype", fmt::format("torch.{}", Name(dtype)));
  AddText(composite, "scheme", Repr(parts[0]));
  composite.about.emplace_back("axis", std::to_string(parts[3].integer));
  composite.parts = {
      {"int_repr", value, FillIntegers}, {"scales", parts[1]}, {"zero_points", parts[2]}};
  if (ElementsPerItem(dtype) > 1) {
    const std::vector<uint64_t> stride = Numbers(arguments[3], "stride");
    AddText(
        composite, "recipe",
        fmt::format("torch._utils._rebuild_qtensor(torch.storage.TypedStorage("
                    "wrap_storage=int_repr.untyped_storage(), dtype=torch.{}, _internal=True), "
                    "0, {}, {}, (torch.per_channel_affine, scales, zero_points, {}), False, {{}})",
                    Name(dtype), TupleText(shape), TupleText(stride), parts[3].integer));
  } else {
    AddText(
        composite, "recipe",
        fmt::format("torch._make_per_channel_quantized_tensor(int_repr, scales, zero_points, {})",
                    parts[3].integer));
  }
}

// Adds every attribute; the caller finds those that contain tensors.
void ComposeAttributes(const Value& state, Budget& budget, Composite& composite) {
  const auto add = [&](const Value& dict) {
    budget.Work(ItemsOf(dict).size());
    Children children(&budget);
    AddPairs(children, ItemsOf(dict), budget);
    for (const Child& child : children) {
      Key name = KeyOf(child.key);
      budget.Charge(2 * sizeof(Part) + 2 * name.text.size());
      composite.parts.push_back({std::move(name.text), child.value});
    }
  };
  if (state.kind == Kind::kDict) {
    add(state);
  } else if (state.kind == Kind::kTuple) {
    const Values items = ItemsOf(state);
    const bool is_pair = items.size() == 2 && std::ranges::all_of(items, [](const Value& item) {
                           return item.kind == Kind::kDict || item.kind == Kind::kNone;
                         });
    budget.Work(items.size());
    for (size_t i = 0; i < items.size(); ++i) {
      if (!is_pair) {
        composite.parts.push_back({fmt::format("state{}", i), items[i]});
      } else if (items[i].kind == Kind::kDict) {
        add(items[i]);
      }
    }
  } else if (state.kind != Kind::kNone) {
    composite.parts.push_back({"state", state});
  }
}

bool IsIdentifier(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

// Returns the attributes whose types JSON cannot express, as a recipe adds them: " | {...}".
std::string LiteralAttributes(const std::vector<Part>& attributes, Budget& budget) {
  constexpr size_t kMost = 65'536;  // Bytes.
  std::string literals;
  for (const Part& attribute : attributes) {
    if (literals.size() > kMost) break;
    const auto name = TextLiteral(attribute.name);
    if (!name || ClassifyTensor(attribute.value) != TensorKind::kNone) continue;
    const std::string place = IsIdentifier(attribute.name) ? fmt::format("parts[{}]", *name) : "";
    const auto literal = LiteralOf(attribute.value, place, budget);
    if (!literal) continue;
    literals += fmt::format("{}{}: {}", literals.empty() ? " | {" : ", ", *name, *literal);
  }
  return literals.empty() ? "" : literals + "}";
}

void ComposeWrapper(const InnermostTensor& innermost, Context& context, Composite& composite) {
  Require(innermost.arguments, 4);
  const std::vector<uint64_t> shape = Numbers(innermost.arguments[2], "size");
  const std::vector<uint64_t> stride = Numbers(innermost.arguments[3], "stride");
  AddShape(composite, shape);
  AddText(composite, "dtype", Repr(innermost.arguments[1]));
  const Value& kind = innermost.arguments[0];
  const Value state = innermost.state == nullptr ? Value() : *innermost.state;
  if (pickle::IsGlobal(kind, "torch.distributed.tensor", "DTensor") ||
      pickle::IsGlobal(kind, "torch.distributed._tensor.api", "DTensor") ||
      pickle::IsGlobal(kind, "torch.distributed._tensor", "DTensor")) {
    return ComposeDTensor(state, shape, stride, context, composite);
  }
  if (pickle::IsGlobal(kind, "torch.distributed._shard.sharded_tensor.api", "ShardedTensor")) {
    return ComposeShardedTensor(state, context.budget, composite);
  }
  ComposeAttributes(state, context.budget, composite);
  const auto dtype = ConstantName(innermost.arguments[1]);
  if (!dtype) return;
  // As torch.load does it. __tensor_unflatten__ wants a context that only the class knows.
  AddText(composite, "recipe",
          fmt::format("torch._utils._set_obj_state(torch._utils._rebuild_wrapper_subclass(cls, {}, "
                      "{}, {}, 0, torch.strided, 'cpu', False), parts | attributes{})",
                      *dtype, TupleText(shape), TupleText(stride),
                      LiteralAttributes(composite.parts, context.budget)));
}

void ComposeMasked(const Value& value, Composite& composite) {
  composite.parts = {{"data", value, FillMaskedData}, {"mask", value, FillMask}};
  const Values state = ItemsOf(ObjectOf(value).state());
  composite.parts.push_back({"fill_value", state.back()});
}

void ComposeMeta(Values arguments, Composite& composite) {
  Require(arguments, 3);
  const auto dtype = ConstantName(arguments[0]);
  const std::vector<uint64_t> shape = Numbers(arguments[1], "size");
  AddText(composite, "device", "meta");
  AddText(composite, "dtype", Repr(arguments[0]));
  AddShape(composite, shape);
  if (arguments.size() > 3 && arguments[3].kind == Kind::kBool) {
    composite.about.emplace_back("requires_grad", arguments[3].integer != 0 ? "true" : "false");
  }
  if (!dtype) return;
  AddText(composite, "recipe",
          fmt::format("torch.empty_strided({}, {}, dtype={}, device='meta')", TupleText(shape),
                      TupleText(Numbers(arguments[2], "stride")), *dtype));
}

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
    Fail(ENOTSUP, "unsupported layout {}", Quoted(layout));
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

void ComposeSparse(Values arguments, Composite& composite) {
  Require(arguments, 2);
  if (arguments[1].kind != Kind::kTuple) Fail(EBADMSG, "its components are not a tuple");
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
    return ClassifyTensor(part.value) != TensorKind::kNone;
  };
  if (!std::ranges::all_of(composite.parts, has_tensor)) return;
  AddText(composite, "recipe",
          fmt::format("torch.nested.nested_tensor_from_jagged(_values, _offsets{}, jagged_dim={})",
                      has_lengths ? ", _lengths" : "", dimension));
}

}  // namespace

void Require(Values arguments, size_t count) {
  if (arguments.size() < count) {
    Fail(EBADMSG, "too few arguments of the constructor (found {}, expected {})", arguments.size(),
         count);
  }
}

void AddText(Composite& composite, std::string_view name, std::string_view text) {
  composite.about.emplace_back(name, json::String(text));
}

std::string TensorClassOf(const InnermostTensor& innermost) {
  if (innermost.function == KnownCallable::kUninitialized) {
    return Repr(ObjectOf(*innermost.value).target);
  }
  if (innermost.function == KnownCallable::kMaskedArray) return Repr(innermost.arguments[0]);
  if (innermost.python_type != nullptr) return Repr(*innermost.python_type);
  return innermost.is_parameter ? "torch.nn.parameter.Parameter" : "torch.Tensor";
}

std::string TupleText(const std::vector<uint64_t>& numbers) {
  return fmt::format("({}{})", fmt::join(numbers, ", "), numbers.size() == 1 ? "," : "");
}

Composite DecomposeTensor(const Value& value, Context& context) {
  const InnermostTensor innermost = UnwrapTensor(value);
  Composite composite;
  AddText(composite, "class", TensorClassOf(innermost));
  switch (innermost.function) {
    case KnownCallable::kRebuildSparse:
    case KnownCallable::kRebuildSparseCsr:
      ComposeSparse(innermost.arguments, composite);
      break;
    case KnownCallable::kRebuildNested:
      ComposeNested(innermost.arguments, composite);
      break;
    case KnownCallable::kRebuildJagged:
      ComposeJagged(innermost.arguments, composite);
      break;
    case KnownCallable::kRebuildQuantized:
      ComposeQuantized(value, innermost.arguments, context, composite);
      break;
    case KnownCallable::kRebuildWrapper:
      ComposeWrapper(innermost, context, composite);
      break;
    case KnownCallable::kRebuildMeta:
      ComposeMeta(innermost.arguments, composite);
      break;
    case KnownCallable::kMaskedArray:
      ComposeMasked(*innermost.value, composite);
      break;
    default:  // kUninitialized: it has no shape yet.
      break;
  }
  const bool has_requires_grad = innermost.function == KnownCallable::kRebuildMeta;
  if (!has_requires_grad && innermost.requires_grad != nullptr &&
      innermost.requires_grad->kind == Kind::kBool) {
    composite.about.emplace_back("requires_grad",
                                 innermost.requires_grad->integer != 0 ? "true" : "false");
  }
  return composite;
}

}  // namespace ckptfs::torch
