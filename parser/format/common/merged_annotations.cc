#include "parser/format/common/merged_annotations.h"

#include <fmt/format.h>

#include <cstdint>
#include <string_view>
#include <utility>

#include "parser/base/json.h"
#include "parser/codec/json_reader.h"
#include "parser/io/simple_sources.h"

namespace ckptfs {
namespace {

// A text is told in a list, which is in memory more than once for a while.
constexpr uint64_t kCopiesOfText = 8;

// A list of texts in JSON as a set.
class TextSet final : public json::Visitor {
 public:
  TextSet(std::set<std::string>& texts, Budget& budget) : texts_(texts), budget_(budget) {}

  void Text(std::string& text) override {
    const auto [place, is_new] = texts_.insert(std::move(text));
    if (is_new)
      budget_.Charge(kCopiesOfText * json::String(*place).size() + sizeof(std::string) +
                     8 * sizeof(void*));
  }

 private:
  std::set<std::string>& texts_;
  Budget& budget_;
};

std::string ListOf(const std::set<std::string>& texts) {
  std::string list = "[";
  for (const std::string& text : texts) {
    if (list.size() > 1) list += ',';
    json::AppendString(list, text);
  }
  return list += ']';
}

}  // namespace

std::string MergedAnnotations::Add(const Checkpoint& checkpoint) {
  std::string json = fmt::format("\"format\":{}", json::String(checkpoint.format));
  Add(checkpoint.root.annotations, json);
  Add(checkpoint.annotations, json);
  return json;
}

void MergedAnnotations::Add(const std::vector<Annotation>& annotations, std::string& json) {
  for (const auto& [name, text] : annotations) {
    const bool is_global = name == "globals";
    if (is_global || name == "globals_refused_by_weights_only") {
      TextSet texts(is_global ? globals_ : refused_globals_, budget_);
      json::Read(MemorySource(text), 0, text.size(), budget_, texts);
      continue;
    }
    budget_.Charge(name.size() + text.size());
    json += fmt::format(",\"{}\":{}", name, text);
  }
}

void MergedAnnotations::Finish(Checkpoint& merged) const {
  if (globals_.empty()) return;
  merged.annotations.emplace_back("globals", ListOf(globals_));
  merged.annotations.emplace_back("globals_refused_by_weights_only", ListOf(refused_globals_));
}

}  // namespace ckptfs
