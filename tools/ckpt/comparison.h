// How the elements of two tensors differ.

#pragma once

#include <cstdint>

#include "parser/checkpoint.h"

namespace ckptfs::ckpt {

// Two NaN are equal, and so are 0 and -0. Of complex numbers the parts are compared. Integers are
// compared exactly.
struct Comparison {
  uint64_t count = 0;
  uint64_t differing = 0;   // Elements that differ, by whatever.
  double max_absolute = 0;  // The largest difference; infinite if one of the two is not finite.
  double max_relative = 0;  // The largest in proportion to the larger magnitude of the two.

  // For the cosine: sums of products of the finite elements.
  double dot = 0;
  double left = 0;
  double right = 0;

  // Of the angle between the tensors as vectors; 1 if both are 0.
  double Cosine() const;

  // Adds that of other elements.
  void Add(const Comparison& other);
};

// Whether bytes `begin` to `end` of the two tensors are the same. Reads both. Any thread may call
// this. Throws Error.
bool AreSame(const Tensor& a, const Tensor& b, uint64_t begin, uint64_t end);

// Compares elements `begin` to `end` of two tensors with the same number of elements, which both
// have numbers (statistics.h), or have the same dtype. Of a dtype without numbers, the elements are
// the bytes. Reads both. Any thread may call this. Throws Error.
Comparison Compare(const Tensor& a, const Tensor& b, uint64_t begin, uint64_t end);

}  // namespace ckptfs::ckpt
