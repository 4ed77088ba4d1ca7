// Tensors: what the constructors that a PyTorch pickle calls make of a storage.

#pragma once

#include <string>

#include "parser/checkpoint.h"
#include "parser/codec/pickle.h"
#include "parser/format/torch/context.h"

namespace ckptfs::torch {

enum class TensorForm : uint8_t {
  kNone,       // No tensor.
  kDense,      // Has dense bytes: FillTensor reads it.
  kComposite,  // Made of other tensors, or of none: sparse, nested, per-channel quantized, meta,
               // ...
};

TensorForm TensorFormOf(const pickle::Value& value);

// Fills in the kDense tensor `value`. What can be told of the tensor (its type, shape and length)
// is there also when this throws: Error that says what is wrong with it.
void FillTensor(const pickle::Value& value, Context& context, Tensor& tensor);

// What a kComposite tensor is, as an object in JSON: {"class": ..., "layout": ..., "shape": ...}.
std::string DescribeComposite(const pickle::Value& value, Budget& budget);

}  // namespace ckptfs::torch
