// Tensors: the results of the constructors that a PyTorch pickle calls.

#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "parser/checkpoint.h"
#include "parser/codec/pickle.h"
#include "parser/format/torch/globals.h"
#include "parser/format/torch/reader.h"
#include "parser/format/torch/storage.h"
#include "parser/layer/strided.h"

namespace ckptfs::torch {

// A tensor without its wrappers (Parameter, subclass, state): the innermost call, which rebuilds a
// tensor from a storage, and what the outer calls add.
struct InnermostTensor {
  KnownCallable function = KnownCallable::kUnknown;
  std::span<const pickle::Value> arguments;
  const pickle::Value* value = nullptr;  // A storage or an array, if there is no call.
  const pickle::Value* python_type =
      nullptr;  // The outermost class, a kGlobal, if it is not Tensor.
  bool is_parameter = false;
  const pickle::Value* requires_grad = nullptr;  // The outermost.
  const pickle::Value* state = nullptr;          // Attributes in Python.
  const pickle::Value* cast = nullptr;           // The dtype that an array is converted to.
};

// Unwraps `value`, which may be any value. The result points into `value` and the pickle's graph.
InnermostTensor UnwrapTensor(const pickle::Value& value);

// The numbers of a size or a stride. Throws Error(EBADMSG), whose message names `what`.
std::vector<uint64_t> Numbers(const pickle::Value& value, std::string_view what);

// Sets type, shape and length. Throws Error if they are invalid.
void SetShape(const View& view, Tensor& tensor);

// Fills in the tensor that is `view` of `storage` from element `offset` on: type, shape, stride and
// data. If this throws Error, the members that are known are set nevertheless.
void FillView(const Storage& storage, uint64_t offset, const View& view, Context& context,
              Tensor& tensor);

enum class TensorKind : uint8_t {
  kNone,       // No tensor.
  kDense,      // Has dense bytes: FillTensor reads it.
  kComposite,  // Consists of other tensors, or of none: see DecomposeTensor.
};

TensorKind ClassifyTensor(const pickle::Value& value);

// Fills in the kDense tensor `value`. If this throws Error, the type, shape and length that are
// known are set nevertheless.
void FillTensor(const pickle::Value& value, Context& context, Tensor& tensor);

// The same for the integers of a quantized tensor; for its bytes if several integers share a byte.
void FillIntegers(const pickle::Value& value, Context& context, Tensor& tensor);

}  // namespace ckptfs::torch
