// Arrays and scalars of NumPy inside a pickle.

#pragma once

#include <string>

#include "parser/checkpoint.h"
#include "parser/codec/npy/type.h"
#include "parser/codec/pickle.h"
#include "parser/format/torch/context.h"
#include "parser/format/torch/vocabulary.h"

namespace ckptfs::torch {

// The type that a numpy.dtype object means. Throws Error(EBADMSG) if it is none.
npy::Type NumpyTypeOf(const pickle::Value& value);

// Whether `value` makes an array whose elements have bytes.
bool IsArray(const pickle::Value& value);

// Fills in the array `value` as a tensor: dense, C order, little-endian. Elements that PyTorch has
// no type for (texts, times, structures) are bytes; the shape then has one dimension more. What can
// be told of the array is there also when this throws: Error that says what is wrong with it.
void FillArray(const pickle::Value& value, Context& context, Tensor& tensor);

// The number that a numpy scalar is, in JSON, and its type: "numpy.float32".
struct NumpyScalar {
  std::string json;
  std::string type;
};

// Precondition: `value` calls Known::kScalar. Throws Error if it is damaged.
NumpyScalar ScalarOf(const pickle::Value& value, Budget& budget);

}  // namespace ckptfs::torch
