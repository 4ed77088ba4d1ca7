// Slices of tensors, written as in NumPy: "[10:20, ::2, ..., -1]".

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "parser/checkpoint.h"
#include "parser/io/byte_source.h"
#include "tools/ckpt/model.h"

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

struct FlippedAxis {
  uint64_t size = 0;
  bool is_flipped = false;
};

// Returns the tensor whose elements, of `item_size` bytes and in C order, are the `data`, with the
// flipped axes in reverse order. At least one axis is flipped, and none is empty.
ByteSourcePtr MakeFlipped(Extent data, std::vector<FlippedAxis> axes, size_t item_size);

enum class Elements {
  kStored,
  kNumbers,  // See Dequantized.
};

// Returns the tensor `key` of `model`, or a slice of it: "h.0.weight[:10]". A tensor whose key ends with
// brackets comes first. Throws Error: ENOENT if there is none, EINVAL if there are several, or the
// slice does not fit; or that of the tensor if it cannot be read.
Tensor SelectedTensor(const Model& model, const std::string& key, Elements elements);

}  // namespace ckptfs::ckpt
