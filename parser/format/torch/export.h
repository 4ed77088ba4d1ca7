// Archives of torch.export, which contain weights and constants beside a program.

#pragma once

#include "parser/checkpoint.h"
#include "parser/format/torch/archive.h"
#include "parser/format/torch/reader.h"

namespace ckptfs::torch {

// Adds the weights and constants of a torch.export. Throws Error.
void AddExport(const Archive& archive, bool is_big_endian, Reading& reading,
               Checkpoint& checkpoint);

// The same for an archive written before PyTorch 2.9.
void AddOldExport(const Archive& archive, Reading& reading, Checkpoint& checkpoint);

}  // namespace ckptfs::torch
