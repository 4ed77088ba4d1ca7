// Tensors: what the constructors that a PyTorch pickle calls make of a storage.

#pragma once

#include <cstdint>
#include <string_view>

#include "parser/checkpoint.h"
#include "parser/codec/pickle.h"
#include "parser/format/torch/context.h"

namespace ckptfs::torch {

enum class TensorForm : uint8_t {
  kNone,       // No tensor.
  kDense,      // Has dense bytes: FillTensor reads it.
  kComposite,  // Made of other tensors, or of none: ComposeOf takes it apart.
};

TensorForm TensorFormOf(const pickle::Value& value);

// The note "python_type" of a storage by itself. One of a type that several elements share a byte
// of has a note "storage_dtype", too, because it is shown as bytes.
constexpr std::string_view kTypedStorageAnnotation = "\"torch.storage.TypedStorage\"";
constexpr std::string_view kUntypedStorageAnnotation = "\"torch.storage.UntypedStorage\"";

// Fills in the kDense tensor `value`. What can be told of the tensor (its type, shape and length)
// is there also when this throws: Error that says what is wrong with it.
void FillTensor(const pickle::Value& value, Context& context, Tensor& tensor);

// The same of the integers that a quantized tensor stores: of those with several in a byte, the
// bytes.
void FillIntegers(const pickle::Value& value, Context& context, Tensor& tensor);

}  // namespace ckptfs::torch
