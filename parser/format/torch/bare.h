// Tensors without their dress: a Parameter of a subclass of a tensor with attributes is, innermost,
// one call that makes a tensor of a storage.

#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "parser/codec/pickle.h"
#include "parser/format/torch/vocabulary.h"

namespace ckptfs::torch {

// A tensor without its dress: the innermost call, and what the outer ones said.
struct Bare {
  Known function = Known::kUnknown;
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
Bare BareOf(const pickle::Value& value);

// The numbers of a size or a stride. Throws Error(EBADMSG) that calls it `what`.
std::vector<uint64_t> Numbers(const pickle::Value& value, std::string_view what);

}  // namespace ckptfs::torch
