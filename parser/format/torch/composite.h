// Composite tensors: sparse, nested, jagged, quantized per channel, distributed, and wrapper
// subclasses. They have no dense bytes of their own, so the mount shows their components and a
// recipe that assembles them.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parser/checkpoint.h"
#include "parser/codec/pickle.h"
#include "parser/format/torch/reader.h"
#include "parser/format/torch/tensor.h"

namespace ckptfs::torch {

// A component, or an attribute that may contain one.
struct Part {
  std::string name;     // PyTorch's name: "indices", "_local_tensor".
  pickle::Value value;  // Points into the graph.

  // Fills in the tensor from `value` in place of FillTensor, unless it is null.
  void (*fill)(const pickle::Value& value, Context& context, Tensor& tensor) = nullptr;
};

struct Composite {
  std::vector<Part> parts;  // Empty for a tensor without elements: on the device "meta".

  // For the meta.json of its directory: "class", "layout", "shape", "dtype", ..., and "recipe", an
  // expression of Python in which each part is a variable of its name.
  std::vector<Annotation> about;
};

// Decomposes the kComposite tensor `value`. Throws Error(EBADMSG) if PyTorch does not make such a
// tensor.
Composite DecomposeTensor(const pickle::Value& value, Context& context);

// The class of the outermost wrapper of a tensor: "torch.nn.parameter.Parameter".
std::string TensorClassOf(const InnermostTensor& innermost);

// A shape as Python prints it: "(2, 3)", "(2,)".
std::string TupleText(const std::vector<uint64_t>& numbers);

// Throws Error(EBADMSG) if a constructor has fewer than `count` arguments.
void Require(std::span<const pickle::Value> arguments, size_t count);

// Adds a text to `about`.
void AddText(Composite& composite, std::string_view name, std::string_view text);

}  // namespace ckptfs::torch
