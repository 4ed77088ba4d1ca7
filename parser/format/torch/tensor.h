// Tensors: what the constructors that a PyTorch pickle calls make of a storage.

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

// Tensors without their dress: a Parameter of a subclass of a tensor with attributes is, innermost,
// one call that makes a tensor of a storage.

// A tensor without its dress: the innermost call, and what the outer ones said.
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

// Undresses `value`, whatever it is. What the result points to is `value` and the pickle's graph.
InnermostTensor UnwrapTensor(const pickle::Value& value);

// The numbers of a size or a stride. Throws Error(EBADMSG) that calls it `what`.
std::vector<uint64_t> Numbers(const pickle::Value& value, std::string_view what);

// Tensors as views of storages, whoever has told of them: a pickle, or a table in JSON.

// Sets type, shape and length. Throws Error if these cannot be.
void SetShape(const View& view, Tensor& tensor);

// Fills in the tensor that is `view` of `storage` from element `offset` on: type, shape, stride and
// data. What can be told of it is there also when this throws Error.
void FillView(const Storage& storage, uint64_t offset, const View& view, Context& context,
              Tensor& tensor);

enum class TensorKind : uint8_t {
  kNone,       // No tensor.
  kDense,      // Has dense bytes: FillTensor reads it.
  kComposite,  // Made of other tensors, or of none: DecomposeTensor takes it apart.
};

TensorKind ClassifyTensor(const pickle::Value& value);

// Fills in the kDense tensor `value`. What can be told of the tensor (its type, shape and length)
// is there also when this throws: Error that says what is wrong with it.
void FillTensor(const pickle::Value& value, Context& context, Tensor& tensor);

// The same of the integers that a quantized tensor stores: of those with several in a byte, the
// bytes.
void FillIntegers(const pickle::Value& value, Context& context, Tensor& tensor);

}  // namespace ckptfs::torch
