// Tensors as views of storages, whoever has told of them: a pickle, or a table in JSON.

#pragma once

#include <cstdint>

#include "parser/checkpoint.h"
#include "parser/format/torch/context.h"
#include "parser/format/torch/storage.h"
#include "parser/layer/strided.h"

namespace ckptfs::torch {

// Sets type, shape and length. Throws Error if these cannot be.
void SetShape(const View& view, Tensor& tensor);

// Fills in the tensor that is `view` of `storage` from element `offset` on: type, shape, stride and
// data. What can be told of it is there also when this throws Error.
void FillView(const Storage& storage, uint64_t offset, const View& view, Context& context,
              Tensor& tensor);

}  // namespace ckptfs::torch
