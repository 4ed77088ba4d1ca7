#include "parser/format/torch/globals.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "parser/base/json.h"
#include "parser/checkpoint.h"

namespace ckptfs::torch {
namespace {

struct Row {
  std::string_view module;
  std::string_view name;
  KnownCallable known;
};

// Sorted by name, then by module.
constexpr Row kRows[] = {
    {"_io", "BytesIO", KnownCallable::kBytesIO},
    {"collections", "Counter", KnownCallable::kCounter},
    {"cdecimal", "Decimal", KnownCallable::kDecimal},
    {"decimal", "Decimal", KnownCallable::kDecimal},
    {"fractions", "Fraction", KnownCallable::kFraction},
    {"torch._dynamo.eval_frame", "OptimizedModule", KnownCallable::kOptimizedModule},
    {"collections", "OrderedDict", KnownCallable::kOrderedDict},
    {"torch.nn.parameter", "Parameter", KnownCallable::kParameter},
    {"pathlib", "PosixPath", KnownCallable::kPath},
    {"pathlib", "PurePosixPath", KnownCallable::kPath},
    {"pathlib", "PureWindowsPath", KnownCallable::kPath},
    {"torch", "Size", KnownCallable::kSize},
    {"uuid", "UUID", KnownCallable::kUuid},
    {"torch.nn.parameter", "UninitializedBuffer", KnownCallable::kUninitialized},
    {"torch.nn.parameter", "UninitializedParameter", KnownCallable::kUninitialized},
    {"torch.autograd.variable", "Variable", KnownCallable::kParameter},
    {"pathlib", "WindowsPath", KnownCallable::kPath},
    {"copyreg", "__newobj__", KnownCallable::kNewObject},
    {"copyreg", "__newobj_ex__", KnownCallable::kNewObjectEx},
    {"dill._dill", "_create_array", KnownCallable::kArrayOfState},
    {"torch.fx.graph_module", "_deserialize_graph_module", KnownCallable::kGraphModule},
    {"numpy._core.numeric", "_frombuffer", KnownCallable::kFromBuffer},
    {"numpy.core.numeric", "_frombuffer", KnownCallable::kFromBuffer},
    {"torch.serialization", "_get_layout", KnownCallable::kLayout},
    {"torch.storage", "_load_from_bytes", KnownCallable::kLoadFromBytes},
    {"tensordict._reductions", "_make_td", KnownCallable::kMakeTensorDict},
    {"numpy.ma.core", "_mareconstruct", KnownCallable::kMaskedArray},
    {"torch._utils", "_rebuild_device_tensor_from_cpu_tensor", KnownCallable::kRebuildFromCpu},
    {"torch._utils", "_rebuild_device_tensor_from_numpy", KnownCallable::kRebuildFromNumpy},
    {"torch._tensor", "_rebuild_from_type", KnownCallable::kRebuildFromType},
    {"torch._tensor", "_rebuild_from_type_v2", KnownCallable::kRebuildFromTypeV2},
    {"torch._utils", "_rebuild_meta_tensor_no_storage", KnownCallable::kRebuildMeta},
    {"torch._utils", "_rebuild_mlc_tensor", KnownCallable::kRebuildFromNumpy},
    {"torch._utils", "_rebuild_nested_tensor", KnownCallable::kRebuildNested},
    {"torch.nested._internal.nested_tensor", "_rebuild_njt", KnownCallable::kRebuildJagged},
    {"torch._utils", "_rebuild_parameter", KnownCallable::kRebuildParameter},
    {"torch._utils", "_rebuild_parameter_with_state", KnownCallable::kRebuildParameterWithState},
    {"torch._utils", "_rebuild_qtensor", KnownCallable::kRebuildQuantized},
    {"torch._utils", "_rebuild_sparse_csr_tensor", KnownCallable::kRebuildSparseCsr},
    {"torch._utils", "_rebuild_sparse_tensor", KnownCallable::kRebuildSparse},
    {"torch._utils", "_rebuild_tensor", KnownCallable::kRebuildTensor},
    {"torch._utils", "_rebuild_tensor_v2", KnownCallable::kRebuildTensorV2},
    {"torch._utils", "_rebuild_tensor_v3", KnownCallable::kRebuildTensorV3},
    {"torch._utils", "_rebuild_wrapper_subclass", KnownCallable::kRebuildWrapper},
    {"torch._utils", "_rebuild_xla_tensor", KnownCallable::kRebuildFromNumpy},
    {"numpy._core.multiarray", "_reconstruct", KnownCallable::kArray},
    {"numpy.core.multiarray", "_reconstruct", KnownCallable::kArray},
    {"jax._src.array", "_reconstruct_array", KnownCallable::kArrayOfState},
    {"copyreg", "_reconstructor", KnownCallable::kReconstructor},
    {"builtins", "bool", KnownCallable::kNumber},
    {"torch.jit._pickle", "build_boollist", KnownCallable::kTransparent},
    {"torch.jit._pickle", "build_doublelist", KnownCallable::kTransparent},
    {"torch.jit._pickle", "build_intlist", KnownCallable::kTransparent},
    {"torch.jit._pickle", "build_tensor_from_id", KnownCallable::kTransparent},
    {"torch.jit._pickle", "build_tensorlist", KnownCallable::kTransparent},
    {"builtins", "bytearray", KnownCallable::kByteArray},
    {"builtins", "bytes", KnownCallable::kBytes},
    {"builtins", "complex", KnownCallable::kComplex},
    {"datetime", "date", KnownCallable::kDate},
    {"datetime", "datetime", KnownCallable::kDateTime},
    {"collections", "defaultdict", KnownCallable::kDefaultDict},
    {"collections", "deque", KnownCallable::kDeque},
    {"torch", "device", KnownCallable::kDevice},
    {"builtins", "dict", KnownCallable::kDict},
    {"numpy", "dtype", KnownCallable::kNumpyDtype},
    {"_codecs", "encode", KnownCallable::kEncode},
    {"builtins", "float", KnownCallable::kNumber},
    {"builtins", "frozenset", KnownCallable::kFrozenSet},
    {"builtins", "getattr", KnownCallable::kGetattr},
    {"builtins", "int", KnownCallable::kNumber},
    {"builtins", "list", KnownCallable::kList},
    {"builtins", "range", KnownCallable::kPrintedCall},
    {"jax._src.device_array", "reconstruct_device_array", KnownCallable::kArrayOfState},
    {"torch.fx.graph_module", "reduce_deploy_graph_module", KnownCallable::kGraphModule},
    {"torch.fx.graph_module", "reduce_graph_module", KnownCallable::kGraphModule},
    {"torch.fx.graph_module", "reduce_package_graph_module", KnownCallable::kGraphModule},
    {"torch.jit._pickle", "restore_type_tag", KnownCallable::kTransparent},
    {"numpy._core.multiarray", "scalar", KnownCallable::kScalar},
    {"numpy.core.multiarray", "scalar", KnownCallable::kScalar},
    {"builtins", "set", KnownCallable::kSet},
    {"builtins", "slice", KnownCallable::kPrintedCall},
    {"builtins", "str", KnownCallable::kNumber},
    {"datetime", "time", KnownCallable::kTime},
    {"datetime", "timedelta", KnownCallable::kTimeDelta},
    {"datetime", "timezone", KnownCallable::kTimeZone},
    {"builtins", "tuple", KnownCallable::kTuple},
    {"builtins", "xrange", KnownCallable::kPrintedCall},
};

constexpr bool IsLess(const Row& a, const Row& b) {
  return std::pair(a.name, a.module) < std::pair(b.name, b.module);
}
static_assert(std::is_sorted(std::begin(kRows), std::end(kRows), IsLess));

constexpr std::pair<std::string_view, Dtype> kStorages[] = {
    {"BFloat16", Dtype::kBfloat16},
    {"Bool", Dtype::kBool},
    {"Byte", Dtype::kUint8},
    {"Char", Dtype::kInt8},
    {"ComplexDouble", Dtype::kComplex128},
    {"ComplexFloat", Dtype::kComplex64},
    {"Double", Dtype::kFloat64},
    {"Float", Dtype::kFloat32},
    {"Half", Dtype::kFloat16},
    {"Int", Dtype::kInt32},
    {"Long", Dtype::kInt64},
    {"QInt32", Dtype::kQint32},
    {"QInt8", Dtype::kQint8},
    {"QUInt2x4", Dtype::kQuint2x4},
    {"QUInt4x2", Dtype::kQuint4x2},
    {"QUInt8", Dtype::kQuint8},
    {"Short", Dtype::kInt16},
};

std::string_view ModuleOf(const Value& global) { return ItemsOf(global)[0].text(); }
std::string_view NameOf(const Value& global) { return ItemsOf(global)[1].text(); }

}  // namespace

KnownCallable FindCallable(const Value& target) {
  if (target.kind != Kind::kGlobal) return KnownCallable::kUnknown;
  const Row wanted = {ModuleOf(target), NameOf(target), KnownCallable::kUnknown};
  const auto* row = std::lower_bound(std::begin(kRows), std::end(kRows), wanted, IsLess);
  const bool is_there = row != std::end(kRows) && !IsLess(wanted, *row);

  return is_there ? row->known : KnownCallable::kUnknown;
}

KnownCallable CallableOf(const Value& value) {
  return pickle::IsObject(value) ? FindCallable(ObjectOf(value).target) : KnownCallable::kUnknown;
}

std::optional<Dtype> DtypeOf(const Value& value) {
  if (value.kind != Kind::kGlobal || ModuleOf(value) != "torch") return std::nullopt;
  const std::string_view name = NameOf(value);
  if (const auto dtype = DtypeNamed(name)) return dtype;
  constexpr std::string_view kStems[] = {"float", "int", "uint", "complex", "bits", "bfloat"};
  const auto starts_name = [&](std::string_view stem) {
    return name.starts_with(stem) && name.find_first_of("0123456789") == stem.size();
  };
  return std::ranges::any_of(kStems, starts_name) ? std::optional(Dtype::kOpaque) : std::nullopt;
}

std::optional<StorageClass> StorageClassNamed(std::string_view module, std::string_view name) {
  if (module != "torch" && module != "torch.cuda" && module != "torch.storage") return std::nullopt;
  if (name == "UntypedStorage" || name == "_UntypedStorage") {
    return StorageClass{.is_untyped = true};
  }
  constexpr std::string_view kSuffix = "Storage";
  if (!name.ends_with(kSuffix)) return std::nullopt;
  name.remove_suffix(kSuffix.size());
  for (const auto& [stem, dtype] : kStorages) {
    if (stem == name) return StorageClass{.dtype = dtype};
  }
  return std::nullopt;
}

std::optional<StorageClass> StorageClassOf(const Value& value) {
  if (value.kind != Kind::kGlobal) return std::nullopt;
  return StorageClassNamed(ModuleOf(value), NameOf(value));
}

namespace {

// The globals that PyTorch 2.13 allows, sorted: its own list, and the additions of modules that
// define distributed or jagged tensors.
constexpr std::string_view kAllowed[] = {
    "_codecs.encode",
    "builtins.bytearray",
    "builtins.complex",
    "builtins.set",
    "collections.Counter",
    "collections.OrderedDict",
    "torch.BFloat16Storage",
    "torch.BFloat16Tensor",
    "torch.BoolStorage",
    "torch.BoolTensor",
    "torch.ByteStorage",
    "torch.ByteTensor",
    "torch.CharStorage",
    "torch.CharTensor",
    "torch.ComplexDoubleStorage",
    "torch.ComplexFloatStorage",
    "torch.DoubleStorage",
    "torch.DoubleTensor",
    "torch.FloatStorage",
    "torch.FloatTensor",
    "torch.HalfStorage",
    "torch.HalfTensor",
    "torch.IntStorage",
    "torch.IntTensor",
    "torch.LongStorage",
    "torch.LongTensor",
    "torch.QInt32Storage",
    "torch.QInt8Storage",
    "torch.QUInt2x4Storage",
    "torch.QUInt4x2Storage",
    "torch.QUInt8Storage",
    "torch.ShortStorage",
    "torch.ShortTensor",
    "torch.Size",
    "torch.Tensor",
    "torch._dynamo.decorators._DimRange",
    "torch._tensor._rebuild_from_type_v2",
    "torch._utils._rebuild_device_tensor_from_cpu_tensor",
    "torch._utils._rebuild_device_tensor_from_numpy",
    "torch._utils._rebuild_meta_tensor_no_storage",
    "torch._utils._rebuild_nested_tensor",
    "torch._utils._rebuild_parameter",
    "torch._utils._rebuild_parameter_with_state",
    "torch._utils._rebuild_qtensor",
    "torch._utils._rebuild_sparse_tensor",
    "torch._utils._rebuild_tensor",
    "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_tensor_v3",
    "torch._utils._rebuild_wrapper_subclass",
    "torch.bfloat16",
    "torch.bits16",
    "torch.bits1x8",
    "torch.bits2x4",
    "torch.bits4x2",
    "torch.bits8",
    "torch.bool",
    "torch.complex128",
    "torch.complex32",
    "torch.complex64",
    "torch.cuda.BFloat16Storage",
    "torch.cuda.BFloat16Tensor",
    "torch.cuda.BoolStorage",
    "torch.cuda.BoolTensor",
    "torch.cuda.ByteStorage",
    "torch.cuda.ByteTensor",
    "torch.cuda.CharStorage",
    "torch.cuda.CharTensor",
    "torch.cuda.ComplexDoubleStorage",
    "torch.cuda.ComplexFloatStorage",
    "torch.cuda.DoubleStorage",
    "torch.cuda.DoubleTensor",
    "torch.cuda.FloatStorage",
    "torch.cuda.FloatTensor",
    "torch.cuda.HalfStorage",
    "torch.cuda.HalfTensor",
    "torch.cuda.IntStorage",
    "torch.cuda.IntTensor",
    "torch.cuda.LongStorage",
    "torch.cuda.LongTensor",
    "torch.cuda.ShortStorage",
    "torch.cuda.ShortTensor",
    "torch.cuda.sparse.BFloat16Tensor",
    "torch.cuda.sparse.ByteTensor",
    "torch.cuda.sparse.CharTensor",
    "torch.cuda.sparse.DoubleTensor",
    "torch.cuda.sparse.FloatTensor",
    "torch.cuda.sparse.HalfTensor",
    "torch.cuda.sparse.IntTensor",
    "torch.cuda.sparse.LongTensor",
    "torch.cuda.sparse.ShortTensor",
    "torch.device",
    "torch.distributed._mesh_layout._FlatLayout",
    "torch.distributed._mesh_layout._MeshLayout",
    "torch.distributed.device_mesh.DeviceMesh",
    "torch.distributed.tensor.DTensor",
    "torch.distributed.tensor._dtensor_spec.DTensorSpec",
    "torch.distributed.tensor._dtensor_spec.ShardOrderEntry",
    "torch.distributed.tensor._dtensor_spec.TensorMeta",
    "torch.distributed.tensor.placement_types.Partial",
    "torch.distributed.tensor.placement_types.Replicate",
    "torch.distributed.tensor.placement_types.Shard",
    "torch.distributed.tensor.placement_types._StridedShard",
    "torch.float16",
    "torch.float32",
    "torch.float4_e2m1fn_x2",
    "torch.float64",
    "torch.float8_e4m3fn",
    "torch.float8_e4m3fnuz",
    "torch.float8_e5m2",
    "torch.float8_e5m2fnuz",
    "torch.float8_e8m0fnu",
    "torch.int1",
    "torch.int16",
    "torch.int2",
    "torch.int3",
    "torch.int32",
    "torch.int4",
    "torch.int5",
    "torch.int6",
    "torch.int64",
    "torch.int7",
    "torch.int8",
    "torch.nested._internal.nested_tensor.NestedTensor",
    "torch.nested._internal.nested_tensor._rebuild_njt",
    "torch.nn.parameter.Parameter",
    "torch.per_channel_affine",
    "torch.per_channel_affine_float_qparams",
    "torch.per_channel_symmetric",
    "torch.per_tensor_affine",
    "torch.per_tensor_symmetric",
    "torch.qint32",
    "torch.qint8",
    "torch.quint2x4",
    "torch.quint4x2",
    "torch.quint8",
    "torch.serialization._get_layout",
    "torch.sparse.BFloat16Tensor",
    "torch.sparse.ByteTensor",
    "torch.sparse.CharTensor",
    "torch.sparse.DoubleTensor",
    "torch.sparse.FloatTensor",
    "torch.sparse.HalfTensor",
    "torch.sparse.IntTensor",
    "torch.sparse.LongTensor",
    "torch.sparse.ShortTensor",
    "torch.storage.TypedStorage",
    "torch.storage.UntypedStorage",
    "torch.uint1",
    "torch.uint16",
    "torch.uint2",
    "torch.uint3",
    "torch.uint32",
    "torch.uint4",
    "torch.uint5",
    "torch.uint6",
    "torch.uint64",
    "torch.uint7",
    "torch.uint8",
};
static_assert(std::is_sorted(std::begin(kAllowed), std::end(kAllowed)));

// Whether torch.load(weights_only=True) of PyTorch 2.13 allows this global by default; users can
// allow more.
bool IsAllowedByWeightsOnly(std::string_view name) {
  return std::ranges::binary_search(kAllowed, name);
}

// Longer names are truncated: many globals may share one.
constexpr size_t kMostOfGlobal = 256;  // Bytes.

// A name is in up to two lists, each of which is temporarily in memory more than once.
constexpr uint64_t kCopiesOfName = 8;

}  // namespace

std::string QualifiedName(const Value& global) {
  const auto parts = ItemsOf(global);
  return fmt::format("{}.{}", parts[0].text().substr(0, kMostOfGlobal),
                     parts[1].text().substr(0, kMostOfGlobal));
}

void Globals::Add(const pickle::Graph& graph) {
  for (const Value& global : graph.globals()) {
    std::string name = QualifiedName(global);
    const auto [place, is_new] = names_.insert(std::move(name));
    if (is_new) budget_.Charge(kCopiesOfName * json::String(*place).size() + 8 * sizeof(void*));
  }
}

void Globals::Report(Checkpoint& checkpoint) const {
  checkpoint.globals.reserve(names_.size());
  for (const std::string& name : names_) {
    checkpoint.globals.push_back({.name = name, .is_refused = !IsAllowedByWeightsOnly(name)});
  }
}

}  // namespace ckptfs::torch
