#include "parser/base/part_name.h"

#include <fmt/format.h>

#include <cstddef>

#include "parser/base/text.h"

namespace ckptfs {
namespace {

constexpr size_t kDigits = 5;
constexpr std::string_view kOf = "-of-";
constexpr std::string_view kEnding = ".gguf";
constexpr size_t kSuffixLength = 1 + kDigits + kOf.size() + kDigits + kEnding.size();

}  // namespace

std::string PartName::Of(uint32_t other) const {
  return fmt::format("{}-{:05}{}{:05}{}", prefix, other, kOf, count, kEnding);
}

std::optional<PartName> ParsePartName(std::string_view file) {
  if (file.size() <= kSuffixLength || file.starts_with('.')) return std::nullopt;
  const std::string_view prefix = file.substr(0, file.size() - kSuffixLength);
  const std::string_view rest = file.substr(prefix.size() + 1);
  const auto number = ParseNumber<uint32_t>(rest.substr(0, kDigits));
  const auto count = ParseNumber<uint32_t>(rest.substr(kDigits + kOf.size(), kDigits));
  if (!number || !count || *number < 1 || *number > *count || *count < 2 || *count > kMostParts) {
    return std::nullopt;
  }
  PartName name{.prefix = std::string(prefix), .number = *number, .count = *count};
  if (name.Of(*number) != file) return std::nullopt;  // Other characters between the numbers.
  return name;
}

}  // namespace ckptfs
