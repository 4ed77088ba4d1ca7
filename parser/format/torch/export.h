// The archives of torch.export, which have weights and constants beside a program.

#pragma once

#include "parser/checkpoint.h"
#include "parser/format/torch/archive.h"
#include "parser/format/torch/reader.h"

namespace ckptfs::torch {

// Adds the weights and constants of a torch.export. Throws Error.
void AddExport(const Archive& archive, bool is_big_endian, Reading& reading,
               Checkpoint& checkpoint);

// The same of one from before PyTorch 2.9.
void AddOldExport(const Archive& archive, Reading& reading, Checkpoint& checkpoint);

}  // namespace ckptfs::torch
