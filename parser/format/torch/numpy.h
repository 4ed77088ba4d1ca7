// Arrays and scalars of NumPy inside a pickle.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "parser/checkpoint.h"
#include "parser/codec/pickle.h"
#include "parser/format/archive/record.h"
#include "parser/format/torch/globals.h"
#include "parser/format/torch/reader.h"

namespace ckptfs::torch {

// Whether `value` is an array whose elements have bytes.
bool IsArray(const pickle::Value& value);

// Whether `value` is a numpy.ma.MaskedArray whose elements have bytes: an array and a mask.
bool IsMaskedArray(const pickle::Value& value);

// An array of Python objects, which are pickled one by one.
struct ObjectArray {
  std::span<const pickle::Value> items;
  const pickle::Value* shape = nullptr;  // A tuple.
};

// Nothing if `value` is no such array.
std::optional<ObjectArray> ObjectArrayOf(const pickle::Value& value);

// Fills in the array `value` as a tensor: dense, C order, little-endian. Elements that PyTorch has
// no type for (texts, times, structures) are bytes; the shape then has one dimension more. If this
// throws Error, the members that are known are set nevertheless.
void FillArray(const pickle::Value& value, Context& context, Tensor& tensor);

// The same for the data and for the mask of a masked array.
void FillMaskedData(const pickle::Value& value, Context& context, Tensor& tensor);
void FillMask(const pickle::Value& value, Context& context, Tensor& tensor);

// The value of a numpy scalar in JSON, and its type: "numpy.float32".
struct NumpyScalar {
  std::string json;
  std::string type;
};

// Precondition: `value` calls KnownCallable::kScalar. Throws Error if it is corrupt.
NumpyScalar ScalarOf(const pickle::Value& value, Budget& budget);

// joblib.dump writes a pickle with the elements of arrays between its opcodes, where an object of
// this class stands for an array. A pickle that names it is read by ReadJoblib.
constexpr std::string_view kJoblibArray = "NumpyArrayWrapper";

// Reads the pickle at the beginning of `record`, which has no error. Sets `length` to its bytes.
Checkpoint ReadJoblib(const Record& record, Reading& reading, uint64_t& length);

}  // namespace ckptfs::torch
