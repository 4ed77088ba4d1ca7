// Diagnosis of files that are not checkpoints.

#pragma once

#include <span>
#include <string>
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

// Returns the diagnosis of a directory without a checkpoint, by the names of its files: "it is a
// TensorFlow SavedModel". Empty if there is no guess.
std::string_view DiagnoseUnknownFolder(std::span<const std::string> files);

}  // namespace ckptfs
