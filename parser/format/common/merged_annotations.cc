#include "parser/format/common/merged_annotations.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "parser/annotations.h"
#include "parser/base/json.h"

namespace ckptfs {
namespace {

// A name is in two lists, which are in memory more than once for a while.
constexpr uint64_t kCopiesOfName = 8;

}  // namespace

std::string MergedAnnotations::Add(const Checkpoint& checkpoint) {
  std::string json = fmt::format("\"format\":{}", json::String(checkpoint.format));
  Add(checkpoint.root.annotations, json);
  Add(checkpoint.annotations, json);
  for (const Global& global : checkpoint.globals) {
    const auto [place, is_new] = globals_.try_emplace(global.name, global.is_refused);
    if (!is_new) continue;
    budget_.Charge(kCopiesOfName * json::String(place->first).size() + sizeof(std::string) +
                   8 * sizeof(void*));
  }
  return json;
}

void MergedAnnotations::Add(const std::vector<Annotation>& annotations, std::string& json) {
  for (const auto& [name, text] : annotations) {
    if (name == kGlobalsAnnotation || name == kRefusedGlobalsAnnotation) continue;
    budget_.Charge(name.size() + text.size());
    json += fmt::format(",\"{}\":{}", name, text);
  }
}

void MergedAnnotations::Finish(Checkpoint& merged) const {
  std::vector<Global> globals;
  globals.reserve(globals_.size());
  for (const auto& [name, is_refused] : globals_) {
    globals.push_back({.name = name, .is_refused = is_refused});
  }
  SetGlobals(std::move(globals), merged);
}

}  // namespace ckptfs
