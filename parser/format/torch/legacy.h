// The legacy stream of torch.save: five pickles, and then the storages.

#pragma once

#include <cstddef>
#include <string_view>

#include "parser/checkpoint.h"
#include "parser/format/torch/reader.h"
#include "parser/io/byte_source.h"

namespace ckptfs::torch {

// Number of bytes that IsLegacy needs.
constexpr size_t kLegacyHead = 64;

// Returns whether `head`, the first kLegacyHead bytes of a file or all of a shorter one, begins a
// legacy stream.
bool IsLegacy(std::string_view head);

// Reads a legacy stream, without its format and globals, as ReadSaved does. Throws Error.
Checkpoint ReadLegacy(const Extent& data, Reading& reading);

}  // namespace ckptfs::torch
