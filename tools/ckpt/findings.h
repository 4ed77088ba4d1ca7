// The findings of ckpt scan: the dangerous imports of pickles, as text, JSON and SARIF.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/error.h"
#include "parser/view/imports.h"

namespace ckptfs::ckpt {

enum class Danger : uint8_t {
  kNone,     // torch.load(weights_only=True) allows it.
  kRefused,  // torch.load(weights_only=True) refuses it: what it does is not known.
  kCode,     // It runs commands or code, or reaches the network or files.
};

std::string_view NameOf(Danger danger);

// Returns how dangerous the global `name` is: "os.system". `is_refused`: by weights_only.
Danger DangerOf(std::string_view name, bool is_refused);

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
