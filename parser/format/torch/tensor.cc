// The arguments of each constructor. `storage` is a persistent id; sizes and strides are tuples, in
// elements:
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
// The first four create a tensor, the others wrap one. A storage by itself is a tensor of one
// dimension.

#include "parser/format/torch/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/checkpoint.h"
#include "parser/format/torch/composite.h"
#include "parser/format/torch/globals.h"
#include "parser/format/torch/literal.h"
#include "parser/format/torch/numpy.h"
#include "parser/format/torch/python.h"
#include "parser/format/torch/repr.h"
#include "parser/format/torch/value.h"
#include "parser/layer/strided.h"

namespace ckptfs::torch {
namespace {

constexpr int kMaxLayers = 16;  // Wrappers of a tensor; honest files have three at most.

// Removes one layer: `innermost.function` and `innermost.arguments` become those of the inner call.
// Returns whether there was one.
bool UnwrapLayer(InnermostTensor& innermost) {
  const Values arguments = innermost.arguments;
  const Value* inner = nullptr;
  switch (innermost.function) {
    case KnownCallable::kRebuildFromType:
    case KnownCallable::kRebuildFromTypeV2:
      if (arguments.size() < 3 || arguments[2].kind != Kind::kTuple) return false;
      if (innermost.python_type == nullptr && !pickle::IsGlobal(arguments[1], "torch", "Tensor")) {
        innermost.python_type = &arguments[1];
      }
      if (arguments.size() > 3 && innermost.state == nullptr) innermost.state = &arguments[3];
      innermost.function = FindCallable(arguments[0]);
      innermost.arguments = ItemsOf(arguments[2]);
      return true;
    case KnownCallable::kRebuildParameter:
    case KnownCallable::kRebuildParameterWithState:
    case KnownCallable::kParameter:
      if (arguments.empty()) return false;
      inner = &arguments[0];
      innermost.is_parameter = true;
      if (arguments.size() > 1 && innermost.requires_grad == nullptr)
        innermost.requires_grad = &arguments[1];
      if (arguments.size() > 3 && innermost.state == nullptr) innermost.state = &arguments[3];
      break;
    case KnownCallable::kRebuildFromCpu:
    case KnownCallable::kRebuildFromNumpy:
      if (arguments.size() < 2) return false;
      inner = &arguments[0];
      innermost.cast = &arguments[1];
      if (arguments.size() > 3 && innermost.requires_grad == nullptr)
        innermost.requires_grad = &arguments[3];
      break;
    default:
      return false;
  }
  innermost.value = inner;
  innermost.function = KnownCallable::kUnknown;
  innermost.arguments = {};
  if (pickle::IsObject(*inner) && !IsArray(*inner)) {
    innermost.function = FindCallable(ObjectOf(*inner).target);
    innermost.arguments = ItemsOf(ObjectOf(*inner).arguments);
  }
  return true;
}

}  // namespace

InnermostTensor UnwrapTensor(const Value& value) {
  InnermostTensor innermost{.value = &value};
  if (!pickle::IsObject(value) || IsArray(value)) return innermost;
  innermost.function = FindCallable(ObjectOf(value).target);
  innermost.arguments = ItemsOf(ObjectOf(value).arguments);
  for (int layer = 0; layer < kMaxLayers && UnwrapLayer(innermost); ++layer) {
  }
  return innermost;
}

std::vector<uint64_t> Numbers(const Value& value, std::string_view what) {
  const bool is_size = pickle::IsObject(value) &&
                       FindCallable(ObjectOf(value).target) == KnownCallable::kSize &&
                       ItemsOf(ObjectOf(value).arguments).size() == 1;
  const Value& tuple = is_size ? ItemsOf(ObjectOf(value).arguments)[0] : value;
  if (tuple.kind != Kind::kTuple && tuple.kind != Kind::kList)
    Fail(EBADMSG, "its {} is not a tuple", what);
  if (ItemsOf(tuple).size() > kMaxDimensions) {
    Fail(EBADMSG, "too many dimensions (found {}, maximum {})", ItemsOf(tuple).size(),
         kMaxDimensions);
  }
  std::vector<uint64_t> numbers;
  numbers.reserve(ItemsOf(tuple).size());
  for (const Value& item : ItemsOf(tuple)) {
    if (item.kind != Kind::kInt || item.integer < 0) {
      Fail(EBADMSG, "its {} has an invalid number (found {}, expected 0 to 2^63)", what,
           Repr(item));
    }
    numbers.push_back(static_cast<uint64_t>(item.integer));
  }
  return numbers;
}

namespace {

// Returns a unique key of a gathered tensor.
std::string IdentityOf(const Extent& extent, const View& view) {
  return fmt::format("{} {} {} {}{}{} {} {}", static_cast<const void*>(extent.source.get()),
                     extent.offset, Name(view.dtype), view.is_big_endian, view.is_conjugated,
                     view.is_negated, fmt::join(view.shape, ","), fmt::join(view.stride, ","));
}

// A tensor that is much larger than its storage (stride 0 repeats elements at no cost) would fill
// the disk when it is copied.
constexpr uint64_t kMostRepeated = uint64_t{64} << 30;  // In bytes.
constexpr uint64_t kMostRepetition = 1024;

void CheckRepetition(uint64_t length, uint64_t stored) {
  if (length > kMostRepeated && length / kMostRepetition > stored) {
    Fail(EOVERFLOW, "expands its {} stored bytes to {}, beyond the limit", stored, length);
  }
}

// Sets the data to `view` of `storage` from element `offset` on.
void SetData(const Storage& storage, uint64_t offset, const View& view, Context& context,
             Tensor& tensor) {
  const uint64_t length = tensor.data.length;
  const Record& record = storage.record;
  record.Check();
  uint64_t begin = 0;
  const bool is_beyond = __builtin_mul_overflow(offset, ItemSize(view.dtype), &begin) ||
                         (length > 0 && begin > storage.size);
  const uint64_t reach = is_beyond ? 0 : ReachOf(view);
  if (is_beyond || (length > 0 && reach > storage.size - begin)) {
    Fail(EBADMSG, "view out of range: {} bytes from element {} on ({} has {} bytes)", reach, offset,
         record.member, storage.size);
  }
  if (length == 0) begin = 0;
  CheckRepetition(length, reach);
  const Extent stored = {record.data.source, record.data.offset + begin, reach};
  if (IsDense(view)) {
    tensor.data = {stored.source, stored.offset, length};
    tensor.is_in_file = record.is_in_file;
    tensor.file_offset = stored.offset;
    return;
  }
  ByteSourcePtr& gathered = context.gathered[IdentityOf(stored, view)];
  if (!gathered) gathered = MakeStrided(stored, view, context.reading.blocks);
  tensor.data = {gathered, 0, length};
}

// Whether the order of the elements in the storage is that of the tensor, ignoring their
// conversion.
bool IsDenseOrder(View view) {
  view.is_big_endian = view.is_conjugated = view.is_negated = false;
  return IsDense(view);
}

}  // namespace

void SetShape(const View& view, Tensor& tensor) {
  tensor.dtype = view.dtype;
  tensor.shape = view.shape;
  tensor.data.length = ByteSize(view.dtype, view.shape);
  if (view.stride.size() != view.shape.size()) {
    Fail(EBADMSG, "shape and stride differ in length (found {} and {})", view.shape.size(),
         view.stride.size());
  }
}

void FillView(const Storage& storage, uint64_t offset, const View& view, Context& context,
              Tensor& tensor) {
  tensor.member = storage.record.member;
  SetShape(view, tensor);
  if (!IsDenseOrder(view)) {
    tensor.annotations.emplace_back("stride", fmt::format("[{}]", fmt::join(view.stride, ",")));
  }
  if (offset != 0) tensor.annotations.emplace_back("storage_offset", std::to_string(offset));
  SetData(storage, offset, view, context, tensor);
}

namespace {

// Whether the metadata of a tensor sets the bit `name`.
bool HasBit(const Value* metadata, std::string_view name) {
  if (metadata == nullptr || metadata->kind != Kind::kDict) return false;
  const Values pairs = ItemsOf(*metadata);
  constexpr size_t kMost = 64;  // Members; PyTorch has two.
  if (pairs.size() > 2 * kMost)
    Fail(EBADMSG, "metadata: too many members (found {})", pairs.size() / 2);
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    if (pairs[i].kind == Kind::kText && pairs[i].text() == name) return IsTrue(&pairs[i + 1]);
  }
  return false;
}

void AddAnnotations(const InnermostTensor& innermost, const Storage& storage, const View& view,
                    Budget& budget, Tensor& tensor) {
  auto& annotations = tensor.annotations;
  if (storage.location != "cpu")
    annotations.emplace_back("location", json::String(storage.location));
  if (view.is_conjugated) annotations.emplace_back("conj", "true");
  if (view.is_negated) annotations.emplace_back("neg", "true");
  if (innermost.python_type != nullptr) {
    annotations.emplace_back("python_type", json::String(Repr(*innermost.python_type)));
  } else if (innermost.is_parameter) {
    annotations.emplace_back("python_type", "\"torch.nn.parameter.Parameter\"");
  }
  if (IsTrue(innermost.requires_grad)) annotations.emplace_back("requires_grad", "true");
  const bool has_attributes =
      innermost.state != nullptr &&
      !(innermost.state->kind == Kind::kDict && ItemsOf(*innermost.state).empty()) &&
      innermost.state->kind != Kind::kNone;
  if (has_attributes)
    annotations.emplace_back("attributes", ValueOf(*innermost.state, budget).json);
}

// Returns the type of the integers of a tensor that is quantized to `dtype`; nothing if several of
// them share a byte.
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
  if (scale.kind != Kind::kFloat || zero_point.kind != Kind::kInt) return;
  const auto integers = IntegersOf(tensor.dtype);
  if (integers || ElementsPerItem(tensor.dtype) > 1) {
    tensor.quantizer = {.scale = scale.real, .zero_point = zero_point.integer};
  }
  if (!integers) return;
  tensor.annotations.emplace_back(
      "recipe", json::String(fmt::format("torch._make_per_tensor_quantized_tensor("
                                         "tensor.view(torch.{}).reshape({}), {}, {})",
                                         Name(*integers), TupleText(tensor.shape),
                                         LiteralOf(scale, "", budget).value_or(Repr(scale)),
                                         Repr(zero_point))));
}

void FillArrayTensor(const InnermostTensor& innermost, Context& context, Tensor& tensor) {
  FillArray(*innermost.value, context, tensor);
  if (innermost.cast == nullptr) return;
  const auto dtype = DtypeOf(*innermost.cast);
  if (!dtype || *dtype == tensor.dtype) return;
  if (*dtype != Dtype::kBfloat16 || tensor.dtype != Dtype::kFloat32) {
    Fail(ENOTSUP, "unsupported conversion from {} to {}", Name(tensor.dtype), Name(*dtype));
  }
  // NumPy has no bfloat16, so it is pickled as float32, whose upper half it is.
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

// A storage by itself; its bytes if several elements share a byte.
void FillStorage(const InnermostTensor& innermost, Context& context, Tensor& tensor) {
  const Storage& storage = StorageOf(*innermost.value, context);
  const bool is_packed = ElementsPerItem(storage.type.dtype) > 1;
  tensor.dtype = is_packed ? Dtype::kUint8 : storage.type.dtype;
  tensor.shape = {storage.size / ItemSize(tensor.dtype)};
  tensor.data.length = storage.size;
  tensor.member = storage.record.member;
  tensor.storage = {.dtype = storage.type.dtype,
                    .is_untyped = storage.type.is_untyped,
                    .is_big_endian = context.is_big_endian};
  tensor.annotations.emplace_back("python_type", storage.type.is_untyped
                                                     ? "\"torch.storage.UntypedStorage\""
                                                     : "\"torch.storage.TypedStorage\"");
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
  InnermostTensor innermost = UnwrapTensor(value);
  if (IsArray(*innermost.value)) return FillArrayTensor(innermost, context, tensor);
  const bool is_storage = innermost.function == KnownCallable::kUnknown ||
                          innermost.function == KnownCallable::kLoadFromBytes;
  if (is_storage) return FillStorage(innermost, context, tensor);

  const Values arguments = innermost.arguments;
  const bool is_v3 = innermost.function == KnownCallable::kRebuildTensorV3;
  const bool is_quantized = innermost.function == KnownCallable::kRebuildQuantized;
  const size_t least = innermost.function == KnownCallable::kRebuildTensor ? 4
                       : is_v3 || is_quantized                             ? 7
                                                                           : 6;
  Require(arguments, least);
  const Storage& storage = StorageOf(arguments[0], context);
  View view{.dtype = storage.type.dtype,
            .shape = Numbers(arguments[2], "size"),
            .stride = Numbers(arguments[3], "stride")};
  if (is_v3) {
    const auto dtype = DtypeOf(arguments[6]);
    if (!dtype) Fail(EBADMSG, "unsupported dtype {}", Repr(arguments[6]));
    view.dtype = *dtype;
  }
  const size_t grad = is_quantized ? 5 : 4;
  if (innermost.requires_grad == nullptr && arguments.size() > grad)
    innermost.requires_grad = &arguments[grad];
  const size_t metadata_at = is_v3 ? 7 : 6;
  const Value* metadata =
      !is_quantized && arguments.size() > metadata_at ? &arguments[metadata_at] : nullptr;
  view.is_conjugated = HasBit(metadata, "conj");
  view.is_negated = HasBit(metadata, "neg");
  view.is_big_endian = context.is_big_endian && SwapSize(view.dtype) > 1;

  tensor.dtype = view.dtype;
  tensor.member = storage.record.member;
  if (view.dtype == Dtype::kOpaque) {
    // The size of its elements is unknown: the whole storage is shown.
    tensor.foreign_dtype = Repr(arguments[6]);
    tensor.shape = {storage.size};
    tensor.data.length = storage.size;
    tensor.annotations.emplace_back("shape_in_python",
                                    fmt::format("[{}]", fmt::join(view.shape, ",")));
    view = {.dtype = Dtype::kOpaque, .shape = tensor.shape, .stride = {1}};
    AddAnnotations(innermost, storage, view, context.budget, tensor);
    FillView(storage, 0, view, context, tensor);
    return;
  }
  SetShape(view, tensor);
  if (arguments[1].kind != Kind::kInt || arguments[1].integer < 0) {
    Fail(EBADMSG, "invalid offset (found {}, expected 0 to 2^63)", Repr(arguments[1]));
  }
  const auto offset = static_cast<uint64_t>(arguments[1].integer);
  if (is_quantized && ItemsOf(arguments[4]).size() == 3) {
    AddQuantizer(ItemsOf(arguments[4]), context.budget, tensor);
  }
  AddAnnotations(innermost, storage, view, context.budget, tensor);
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

namespace {

bool IsPerTensor(const Value& quantizer) {
  return quantizer.kind == Kind::kTuple && ItemsOf(quantizer).size() == 3 &&
         (pickle::IsGlobal(ItemsOf(quantizer)[0], "torch", "per_tensor_affine") ||
          pickle::IsGlobal(ItemsOf(quantizer)[0], "torch", "per_tensor_symmetric"));
}

TensorKind ClassifyInnermost(const InnermostTensor& innermost) {
  switch (innermost.function) {
    case KnownCallable::kRebuildTensor:
    case KnownCallable::kRebuildTensorV2:
    case KnownCallable::kRebuildTensorV3:
    case KnownCallable::kLoadFromBytes:
      return TensorKind::kDense;
    case KnownCallable::kRebuildQuantized:
      return innermost.arguments.size() > 4 && IsPerTensor(innermost.arguments[4])
                 ? TensorKind::kDense
                 : TensorKind::kComposite;
    case KnownCallable::kRebuildMeta:
    case KnownCallable::kRebuildSparse:
    case KnownCallable::kRebuildSparseCsr:
    case KnownCallable::kRebuildNested:
    case KnownCallable::kRebuildJagged:
    case KnownCallable::kRebuildWrapper:
    case KnownCallable::kUninitialized:
      return TensorKind::kComposite;
    case KnownCallable::kMaskedArray:
      return IsMaskedArray(*innermost.value) ? TensorKind::kComposite : TensorKind::kNone;
    default:
      break;
  }
  if (innermost.value->kind == Kind::kPersistent || IsArray(*innermost.value))
    return TensorKind::kDense;
  return TensorKind::kNone;
}

}  // namespace

TensorKind ClassifyTensor(const Value& value) {
  if (value.kind == Kind::kPersistent) return TensorKind::kDense;
  return pickle::IsObject(value) ? ClassifyInnermost(UnwrapTensor(value)) : TensorKind::kNone;
}

}  // namespace ckptfs::torch
