// Names of the GGUF files that one model is split into: model-00002-of-00005.gguf.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ckptfs {

constexpr uint32_t kMostParts = 10'000;

struct PartName {
  std::string prefix;   // "model".
  uint32_t number = 0;  // From 1 to `count`.
  uint32_t count = 0;   // From 2 to kMostParts.

  // Returns the name of part `other`.
  std::string Of(uint32_t other) const;
};

// Parses the name of a file; returns nothing if it is not that of a part.
std::optional<PartName> ParsePartName(std::string_view file);

}  // namespace ckptfs
