// Tensors as views of storages, whoever has told of them: a pickle, or a table in JSON.

#pragma once

#include <cstdint>
#include <string_view>

#include "parser/budget.h"
#include "parser/checkpoint.h"
#include "parser/error.h"
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

// Adds to `checkpoint` the warning that the tensor `name` cannot be read. Charges `budget` for it
// and for what is shown in the place of the tensor.
void WarnOfDamage(std::string_view name, const Error& error, Budget& budget,
                  Checkpoint& checkpoint);

// Bytes of a file that cannot be read, or not as a whole.
constexpr uint64_t kMostForDamaged = uint64_t{1} << 40;

// What is shown in the place of a tensor that cannot be read: a file of its size that cannot be
// read either, or a value that tells why, if the size is not known.
Content Damaged(Tensor tensor, const Error& error);

}  // namespace ckptfs::torch
