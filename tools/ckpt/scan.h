// ckpt scan: what loading checkpoints would execute.

#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tools/ckpt/commands.h"

namespace ckptfs::ckpt {

enum class ScanFormat : uint8_t { kText, kJson, kSarif };

// Prints the classes and functions that the pickles of `sources`, and of all files in them that are
// local folders, import, unless torch.load(weights_only=True) allows them. Nothing is executed.
// Returns the exit status: 1 if there is any, or if a checkpoint cannot be read, because its pickle
// runs up to the corrupt byte; else 0. Throws Error.
int Scan(std::span<const std::string> sources, const OpenModel& open, ScanFormat format);

}  // namespace ckptfs::ckpt
