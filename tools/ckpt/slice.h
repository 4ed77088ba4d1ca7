// Slices of tensors, written as in NumPy: "[10:20, ::2, ..., -1]".

#pragma once

#include <string_view>

#include "parser/checkpoint.h"

namespace ckptfs::ckpt {

// A key and the slice behind it: "h.0.weight" and "10:20".
struct SlicedKey {
  std::string_view key;
  std::string_view slice;  // What is between the brackets.
  bool has_slice = false;
};
SlicedKey SplitSlice(std::string_view text);

// Returns the elements of `tensor` that `slice` selects: integers, slices, and one ellipsis, with
// commas between them. As in NumPy, an integer removes its axis, negative numbers count
// from the end, and slices are cut off at the ends of the axis. Nothing is read yet. Throws Error:
// EINVAL if the slice is malformed or does not fit the shape, ENOTSUP if the dtype has no shape in
// elements, or several elements in a byte.
Tensor Sliced(const Tensor& tensor, std::string_view slice);

}  // namespace ckptfs::ckpt
