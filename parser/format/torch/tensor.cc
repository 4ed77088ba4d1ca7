// What each constructor is given; `storage` is a persistent id, sizes and strides are tuples that
// count elements:
//
//   _rebuild_tensor                 storage, offset, size, stride
//   _rebuild_tensor_v2              ..., requires_grad, hooks[, metadata {"conj", "neg"}]
//   _rebuild_tensor_v3              ..., requires_grad, hooks, dtype[, metadata]; untyped storage
//   _rebuild_qtensor                ..., quantizer (scheme, scale, zero point), requires_grad,
//                                   hooks
//   _rebuild_parameter              tensor, requires_grad, hooks
//   _rebuild_parameter_with_state   tensor, requires_grad, hooks, state
//   _rebuild_from_type(_v2)         function, class, arguments of function, state
//   _rebuild_device_tensor_*        array or tensor, dtype, device, requires_grad
//
// The first four make a tensor, the others dress one up. A storage by itself is a tensor of one
// dimension.

#include "parser/format/torch/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <iterator>
#include <optional>
#include <span>
#include <utility>

#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/format/torch/bare.h"
#include "parser/format/torch/composite.h"
#include "parser/format/torch/literal.h"
#include "parser/format/torch/numpy.h"
#include "parser/format/torch/repr.h"
#include "parser/format/torch/value.h"
#include "parser/format/torch/view.h"
#include "parser/format/torch/vocabulary.h"
#include "parser/layer/strided.h"

namespace ckptfs::torch {
namespace {

using pickle::ItemsOf;
using pickle::Kind;
using pickle::ObjectOf;
using pickle::Value;
using Values = std::span<const Value>;

bool IsTrue(const Value* value) {
  return value != nullptr && value->kind == Kind::kBool && value->integer != 0;
}

// Whether the metadata of a tensor sets the bit `name`.
bool HasBit(const Value* metadata, std::string_view name) {
  if (metadata == nullptr || metadata->kind != Kind::kDict) return false;
  const Values pairs = ItemsOf(*metadata);
  constexpr size_t kMost = 64;  // Members; PyTorch has two.
  if (pairs.size() > 2 * kMost) Fail(EBADMSG, "its metadata has {} members", pairs.size() / 2);
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    if (pairs[i].kind == Kind::kText && pairs[i].text() == name) return IsTrue(&pairs[i + 1]);
  }
  return false;
}

void AddAnnotations(const Bare& bare, const Storage& storage, const View& view, Budget& budget,
                    Tensor& tensor) {
  auto& annotations = tensor.annotations;
  if (storage.location != "cpu")
    annotations.emplace_back("location", json::String(storage.location));
  if (view.is_conjugated) annotations.emplace_back("conj", "true");
  if (view.is_negated) annotations.emplace_back("neg", "true");
  if (bare.python_type != nullptr) {
    annotations.emplace_back("python_type", json::String(Repr(*bare.python_type)));
  } else if (bare.is_parameter) {
    annotations.emplace_back("python_type", "\"torch.nn.parameter.Parameter\"");
  }
  if (IsTrue(bare.requires_grad)) annotations.emplace_back("requires_grad", "true");
  const bool has_attributes = bare.state != nullptr &&
                              !(bare.state->kind == Kind::kDict && ItemsOf(*bare.state).empty()) &&
                              bare.state->kind != Kind::kNone;
  if (has_attributes) annotations.emplace_back("attributes", ValueOf(*bare.state, budget).json);
}

// What the integers of a tensor are called that is quantized to `dtype`; nothing if several of them
// share a byte.
std::optional<Dtype> IntegersOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kQint8:
      return Dtype::kInt8;
    case Dtype::kQuint8:
      return Dtype::kUint8;
    case Dtype::kQint32:
      return Dtype::kInt32;
    default:
      return {};
  }
}

// `quantizer` is scheme, scale and zero point.
void AddQuantizer(Values quantizer, Budget& budget, Tensor& tensor) {
  const Value& scale = quantizer[1];
  const Value& zero_point = quantizer[2];
  tensor.annotations.emplace_back(
      "quantizer",
      fmt::format(R"({{"scheme":{},"scale":{},"zero_point":{}}})", json::String(Repr(quantizer[0])),
                  ValueOf(scale, budget).json, ValueOf(zero_point, budget).json));
  const auto integers = IntegersOf(tensor.dtype);
  const bool has_numbers = scale.kind == Kind::kFloat && zero_point.kind == Kind::kInt;
  if (!integers || !has_numbers) return;
  tensor.annotations.emplace_back(
      "recipe", json::String(fmt::format("torch._make_per_tensor_quantized_tensor("
                                         "tensor.view(torch.{}).reshape({}), {}, {})",
                                         Name(*integers), TupleText(tensor.shape),
                                         LiteralOf(scale, "", budget).value_or(Repr(scale)),
                                         Repr(zero_point))));
}

void FillArrayTensor(const Bare& bare, Context& context, Tensor& tensor) {
  FillArray(*bare.value, context, tensor);
  if (bare.cast == nullptr) return;
  const auto dtype = DtypeOf(*bare.cast);
  if (!dtype || *dtype == tensor.dtype) return;
  if (*dtype != Dtype::kBfloat16 || tensor.dtype != Dtype::kFloat32) {
    Fail(ENOTSUP, "is stored as {}, which we do not convert to {}", Name(tensor.dtype),
         Name(*dtype));
  }
  // NumPy has no bfloat16, so it is sent as float32, of which it is the upper half.
  const std::vector<uint64_t> shape = tensor.shape;
  const uint64_t length = ByteSize(*dtype, shape);
  View view{.dtype = *dtype, .shape = shape, .stride = std::vector<uint64_t>(shape.size(), 2)};
  for (size_t i = shape.size(); i-- > 1;) view.stride[i - 1] = view.stride[i] * shape[i];
  const Extent stored = tensor.data;
  tensor.dtype = *dtype;
  tensor.is_in_file = false;
  if (length == 0) {
    tensor.data = {stored.source, stored.offset, 0};
  } else {
    tensor.data = {MakeStrided({stored.source, stored.offset + 2, stored.length - 2}, view,
                               context.reading.blocks),
                   0, length};
  }
}

// A storage by itself. Of types that several elements share a byte of, its bytes.
void FillStorage(const Bare& bare, Context& context, Tensor& tensor) {
  const Storage& storage = StorageOf(*bare.value, context);
  const bool is_packed = ElementsPerItem(storage.type.dtype) > 1;
  tensor.dtype = is_packed ? Dtype::kUint8 : storage.type.dtype;
  tensor.shape = {storage.size / ItemSize(tensor.dtype)};
  tensor.data.length = storage.size;
  tensor.member = storage.record.member;
  tensor.annotations.emplace_back(
      "python_type", storage.type.is_untyped ? kUntypedStorageAnnotation : kTypedStorageAnnotation);
  if (is_packed) {
    tensor.annotations.emplace_back("storage_dtype",
                                    fmt::format("\"torch.{}\"", Name(storage.type.dtype)));
  }
  const View view{.dtype = tensor.dtype,
                  .shape = tensor.shape,
                  .stride = {1},
                  .is_big_endian = context.is_big_endian && SwapSize(tensor.dtype) > 1};
  FillView(storage, 0, view, context, tensor);
}

}  // namespace

void FillTensor(const Value& value, Context& context, Tensor& tensor) {
  Bare bare = BareOf(value);
  if (IsArray(*bare.value)) return FillArrayTensor(bare, context, tensor);
  const bool is_storage =
      bare.function == Known::kUnknown || bare.function == Known::kLoadFromBytes;
  if (is_storage) return FillStorage(bare, context, tensor);

  const Values arguments = bare.arguments;
  const bool is_v3 = bare.function == Known::kRebuildTensorV3;
  const bool is_quantized = bare.function == Known::kRebuildQuantized;
  const size_t least = bare.function == Known::kRebuildTensor ? 4 : is_v3 || is_quantized ? 7 : 6;
  if (arguments.size() < least) {
    Fail(EBADMSG, "is made of {} arguments, but needs {}", arguments.size(), least);
  }
  const Storage& storage = StorageOf(arguments[0], context);
  View view{.dtype = storage.type.dtype,
            .shape = Numbers(arguments[2], "size"),
            .stride = Numbers(arguments[3], "stride")};
  if (is_v3) {
    const auto dtype = DtypeOf(arguments[6]);
    if (!dtype) Fail(EBADMSG, "its dtype {} is none", Repr(arguments[6]));
    view.dtype = *dtype;
  }
  const size_t grad = is_quantized ? 5 : 4;
  if (bare.requires_grad == nullptr && arguments.size() > grad)
    bare.requires_grad = &arguments[grad];
  const size_t metadata_at = is_v3 ? 7 : 6;
  const Value* metadata =
      !is_quantized && arguments.size() > metadata_at ? &arguments[metadata_at] : nullptr;
  view.is_conjugated = HasBit(metadata, "conj");
  view.is_negated = HasBit(metadata, "neg");
  view.is_big_endian = context.is_big_endian && SwapSize(view.dtype) > 1;

  tensor.dtype = view.dtype;
  tensor.member = storage.record.member;
  if (view.dtype == Dtype::kOpaque) {
    // Its elements have a size that we do not know: the whole storage is shown.
    tensor.foreign_dtype = Repr(arguments[6]);
    tensor.shape = {storage.size};
    tensor.data.length = storage.size;
    tensor.annotations.emplace_back("shape_in_python",
                                    fmt::format("[{}]", fmt::join(view.shape, ",")));
    view = {.dtype = Dtype::kOpaque, .shape = tensor.shape, .stride = {1}};
    AddAnnotations(bare, storage, view, context.budget, tensor);
    FillView(storage, 0, view, context, tensor);
    return;
  }
  SetShape(view, tensor);
  if (arguments[1].kind != Kind::kInt || arguments[1].integer < 0) {
    Fail(EBADMSG, "its offset is {}, but must be a number from 0 to 2^63", Repr(arguments[1]));
  }
  const auto offset = static_cast<uint64_t>(arguments[1].integer);
  if (is_quantized && ItemsOf(arguments[4]).size() == 3) {
    AddQuantizer(ItemsOf(arguments[4]), context.budget, tensor);
  }
  AddAnnotations(bare, storage, view, context.budget, tensor);
  FillView(storage, offset, view, context, tensor);
}

void FillIntegers(const Value& value, Context& context, Tensor& tensor) {
  FillTensor(value, context, tensor);
  if (const auto integers = IntegersOf(tensor.dtype)) {
    tensor.dtype = *integers;
  } else {
    tensor.dtype = Dtype::kUint8;
    tensor.shape = {tensor.data.length};
  }
}

}  // namespace ckptfs::torch
