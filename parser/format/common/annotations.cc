#include "parser/format/common/annotations.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "parser/base/json.h"
#include "parser/checkpoint.h"

namespace ckptfs {
namespace {

// A name is in two lists, each of which is temporarily in memory more than once.
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
    budget_.Charge(name.size() + text.size());
    json += fmt::format(",\"{}\":{}", name, text);
  }
}

void MergedAnnotations::Finish(Checkpoint& merged) const {
  merged.globals.reserve(globals_.size());
  for (const auto& [name, is_refused] : globals_) {
    merged.globals.push_back({.name = name, .is_refused = is_refused});
  }
}

PythonTypes::Inside::Inside(std::string& pointer, std::string_view step)
    : pointer_(pointer), length_(pointer.size()) {
  pointer += '/';
  for (const char c : step) {
    if (c == '~') {
      pointer += "~0";
    } else if (c == '/') {
      pointer += "~1";
    } else {
      pointer += c;
    }
  }
}

void PythonTypes::Add(std::string_view type) {
  if (type.empty()) return;
  constexpr uint64_t kCopies = 3;  // It grows, and is copied to meta.json.
  budget_.Charge(kCopies * (pointer_.size() + type.size()));
  if (!types_.empty()) types_ += ',';
  json::AppendString(types_, pointer_);
  types_ += ':';
  json::AppendString(types_, type);
}

void PythonTypes::AddTo(Value& value) {
  if (!types_.empty())
    value.annotations.emplace_back("python_types", fmt::format("{{{}}}", types_));
}

}  // namespace ckptfs
