// What ckpt scan has found, as text, JSON and SARIF.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "parser/base/error.h"
#include "parser/view/imports.h"
#include "tools/ckpt/danger.h"

namespace ckptfs::ckpt {

struct Finding {
  Import import;
  Danger danger = Danger::kNone;
};

struct ScannedFile {
  std::string name;
  bool is_checkpoint = false;  // Or a file with pickles.
  std::vector<Finding> findings;
  std::optional<Error> error;  // The message names the file.

  bool is_bad() const { return !findings.empty() || error; }
};

enum class ScanFormat : uint8_t { kText, kJson, kSarif };

std::string FindingsText(std::span<const ScannedFile> files, ScanFormat format);

}  // namespace ckptfs::ckpt
