// Diagnosis of files that are not checkpoints.

#pragma once

#include <string_view>

#include "parser/format.h"

namespace ckptfs {

// A guess of the type of a file that no format has matched.
struct Diagnosis {
  std::string_view text;  // The end of a message, with a remedy. Empty if there is no guess.
  bool is_json = false;
};

// Returns the diagnosis of a file: "it is a gzip archive: unpack it first".
Diagnosis DiagnoseUnknownFile(const Probe& probe);

}  // namespace ckptfs
