// The globals of PyTorch pickles: the callables that ckptfs interprets, and the list of all imports
// of a file. Other callables are opaque: they are shown by name, with their arguments.

#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "parser/base/budget.h"
#include "parser/base/dtype.h"
#include "parser/checkpoint.h"
#include "parser/codec/pickle.h"

namespace ckptfs::torch {

// In the sources of this room, a Value is one of a pickle; one of a checkpoint is a ckptfs::Value.
// Headers, which others include, spell both out.
using pickle::ItemsOf;
using pickle::Kind;
using pickle::Object;
using pickle::ObjectOf;
using pickle::Value;
using Values = std::span<const Value>;

enum class KnownCallable : uint8_t {
  kUnknown,
  // Python's own.
  kOrderedDict,
  kCounter,
  kDefaultDict,
  kDeque,
  kSet,
  kFrozenSet,
  kDict,
  kList,
  kTuple,
  kBytes,
  kByteArray,
  kNumber,  // int, float, bool, str: of one literal
  kComplex,
  kPrintedCall,  // range, slice: shown as the call that makes it
  kGetattr,
  kEncode,         // _codecs.encode: bytes in protocol 2
  kReconstructor,  // copyreg._reconstructor(class, base, state)
  kNewObject,      // copyreg.__newobj__(class, *arguments)
  kNewObjectEx,    // copyreg.__newobj_ex__(class, arguments, keywords)
  kPath,
  kDate,
  kDateTime,
  kTime,
  kTimeDelta,
  kTimeZone,
  kDecimal,
  kFraction,
  kUuid,
  kBytesIO,
  // PyTorch's values.
  kSize,
  kDevice,
  kLayout,
  kTransparent,  // TorchScript's wrappers: the value is the first argument
  // NumPy.
  kArray,         // _reconstruct, then BUILD
  kFromBuffer,    // arrays in protocol 5
  kArrayOfState,  // arrays of dill and JAX: all in one call
  kMaskedArray,
  kScalar,
  kNumpyDtype,
  kMakeTensorDict,
  kGraphModule,
  kOptimizedModule,
  // Tensors: parser/format/torch/tensor.cc lists the arguments of each.
  kRebuildTensor,
  kRebuildTensorV2,
  kRebuildTensorV3,
  kRebuildParameter,
  kRebuildParameterWithState,
  kRebuildQuantized,
  kRebuildFromType,
  kRebuildFromTypeV2,
  kRebuildFromNumpy,
  kRebuildFromCpu,
  kParameter,
  // Tensors that have no dense bytes of their own.
  kRebuildMeta,
  kRebuildSparse,
  kRebuildSparseCsr,
  kRebuildNested,
  kRebuildJagged,
  kRebuildWrapper,
  kUninitialized,
  // Storages that are files: parser/format/torch/storage.h
  kLoadFromBytes,
};

// The callable that `target` names.
KnownCallable FindCallable(const pickle::Value& target);

// Returns the callable that created the object `value`; kUnknown for other values.
KnownCallable CallableOf(const pickle::Value& value);

// The element type of a `torch.<name>` global; kOpaque for an unknown one whose name is that of a
// type ("float4_e3m0"); nothing for other values.
std::optional<Dtype> DtypeOf(const pickle::Value& value);

// A storage class: torch.FloatStorage, torch.cuda.HalfStorage, torch.storage.UntypedStorage.
struct StorageClass {
  Dtype dtype = Dtype::kUint8;
  bool is_untyped = false;
};

// Nothing if there is no storage class `module`.`name`.
std::optional<StorageClass> StorageClassNamed(std::string_view module, std::string_view name);

// Nothing if `value` is no storage class.
std::optional<StorageClass> StorageClassOf(const pickle::Value& value);

// Returns "module.name" of a kGlobal. Overlong names are truncated, since many globals may share
// one.
std::string QualifiedName(const pickle::Value& global);

// The classes and functions that the pickles of one checkpoint import. Belongs to one thread.
class Globals {
 public:
  // `budget`, to which the names are charged, must outlive this.
  explicit Globals(Budget& budget) : budget_(budget) {}

  // Adds the globals of one pickle. Throws Error(EFBIG).
  void Add(const pickle::Graph& graph);

  // Sets the globals of `checkpoint`, which had none.
  void Report(Checkpoint& checkpoint) const;

 private:
  Budget& budget_;
  std::set<std::string> names_;  // "module.name", truncated.
};

}  // namespace ckptfs::torch
