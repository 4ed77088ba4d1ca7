// The numbers that quantized tensors stand for.

#pragma once

#include <deque>
#include <span>

#include "parser/checkpoint.h"
#include "tools/ckpt/entries.h"

namespace ckptfs::ckpt {

// Returns `tensor` as one of float32, with the shape of its elements and the name of its type, if
// it consists of blocks that are known (ggml_blocks.h), or of integers that stand for numbers
// (Quantizer); else as it is. Reads decode the blocks that they need. Reads nothing yet.
Tensor Dequantized(const Tensor& tensor);

// Replaces those of `tensors` that are decoded. The result owns them.
[[nodiscard]] std::deque<Tensor> Dequantize(std::span<TensorEntry> tensors);

}  // namespace ckptfs::ckpt
