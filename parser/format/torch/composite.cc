// Tensors that have no dense bytes of their own: they are told apart here, and described.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <span>
#include <string_view>

#include "parser/error.h"
#include "parser/format/torch/bare.h"
#include "parser/format/torch/numpy.h"
#include "parser/format/torch/repr.h"
#include "parser/format/torch/tensor.h"
#include "parser/format/torch/value.h"
#include "parser/format/torch/vocabulary.h"
#include "parser/json.h"

namespace ckptfs::torch {
namespace {

using pickle::ItemsOf;
using pickle::Kind;
using pickle::ObjectOf;
using pickle::Value;
using Values = std::span<const Value>;

bool IsPerTensor(const Value& quantizer) {
  return quantizer.kind == Kind::kTuple && ItemsOf(quantizer).size() == 3 &&
         (pickle::IsGlobal(ItemsOf(quantizer)[0], "torch", "per_tensor_affine") ||
          pickle::IsGlobal(ItemsOf(quantizer)[0], "torch", "per_tensor_symmetric"));
}

TensorForm FormOf(const Bare& bare) {
  switch (bare.function) {
    case Known::kRebuildTensor:
    case Known::kRebuildTensorV2:
    case Known::kRebuildTensorV3:
      return TensorForm::kDense;
    case Known::kRebuildQuantized:
      return bare.arguments.size() > 4 && IsPerTensor(bare.arguments[4]) ? TensorForm::kDense
                                                                         : TensorForm::kComposite;
    case Known::kRebuildMeta:
    case Known::kRebuildSparse:
    case Known::kRebuildSparseCsr:
    case Known::kRebuildNested:
    case Known::kRebuildJagged:
    case Known::kRebuildWrapper:
    case Known::kUninitialized:
      return TensorForm::kComposite;
    default:
      break;
  }
  if (bare.value->kind == Kind::kPersistent || IsArray(*bare.value)) return TensorForm::kDense;
  return TensorForm::kNone;
}

}  // namespace

TensorForm TensorFormOf(const Value& value) {
  if (value.kind == Kind::kPersistent) return TensorForm::kDense;
  return pickle::IsObject(value) ? FormOf(BareOf(value)) : TensorForm::kNone;
}

std::string DescribeComposite(const Value& value, Budget& budget) {
  const Bare bare = BareOf(value);
  const Values arguments = bare.arguments;
  std::string out = "{\"class\":";
  const auto add = [&](std::string_view name, const Value& part) {
    out += fmt::format(",\"{}\":{}", name, json::String(Repr(part)));
  };
  const auto add_numbers = [&](const Value& part) {
    try {
      out += fmt::format(",\"shape\":[{}]", fmt::join(Numbers(part, "size"), ","));
    } catch (const Error&) {
      add("shape", part);
    }
  };
  if (bare.function == Known::kUninitialized) {
    out += json::String(pickle::GlobalName(ObjectOf(*bare.value).target));
  } else if (bare.python_type != nullptr) {
    out += json::String(Repr(*bare.python_type));
  } else {
    out += bare.is_parameter ? "\"torch.nn.parameter.Parameter\"" : "\"torch.Tensor\"";
  }
  switch (bare.function) {
    case Known::kRebuildMeta:  // dtype, size, stride, requires_grad
      out += ",\"device\":\"meta\"";
      if (!arguments.empty()) add("dtype", arguments[0]);
      if (arguments.size() > 1) add_numbers(arguments[1]);
      break;
    case Known::kRebuildSparse:  // layout, (indices, values, size, ...) or (rows, columns, values,
                                 // size)
    case Known::kRebuildSparseCsr:
      if (arguments.size() == 2 && arguments[1].kind == Kind::kTuple) {
        out += ",\"layout\":" + ValueOf(arguments[0], budget).json;
        const Values data = ItemsOf(arguments[1]);
        const bool is_coo = ValueOf(arguments[0], budget).json == "\"torch.sparse_coo\"";
        const size_t size_at = is_coo ? 2 : 3;
        if (data.size() > size_at) add_numbers(data[size_at]);
      }
      break;
    case Known::kRebuildNested:
      out += ",\"layout\":\"nested\"";
      break;
    case Known::kRebuildJagged:
      out += ",\"layout\":\"torch.jagged\"";
      break;
    case Known::kRebuildWrapper:  // class, dtype, size, ...
      if (arguments.size() > 2) {
        add("dtype", arguments[1]);
        add_numbers(arguments[2]);
      }
      break;
    case Known::kRebuildQuantized:  // storage, offset, size, stride, (scheme, ...), ...
      if (arguments.size() > 4) {
        add_numbers(arguments[2]);
        const Value& quantizer = arguments[4];
        if (quantizer.kind == Kind::kTuple && !ItemsOf(quantizer).empty()) {
          add("quantizer", ItemsOf(quantizer)[0]);
        }
      }
      break;
    default:
      break;
  }
  return out + "}";
}

}  // namespace ckptfs::torch
