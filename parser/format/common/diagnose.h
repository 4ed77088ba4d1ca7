// Diagnosis of files that are not checkpoints.

#pragma once

#include <string_view>

#include "parser/format.h"

namespace ckptfs {

// Returns a guess of the type of a file that no format has matched, as the end of a message, and a
// remedy: "it is a gzip archive: unpack it first". Empty if there is none.
std::string_view DiagnoseUnknownFile(const Probe& probe);

}  // namespace ckptfs
