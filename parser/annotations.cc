#include "parser/annotations.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "parser/base/json.h"
#include "parser/base/overloaded.h"

namespace ckptfs {

std::vector<Annotation>& AnnotationsOf(Content& content) {
  return std::visit(
      Overloaded{[](std::unique_ptr<Group>& group) -> std::vector<Annotation>& {
                   return group->annotations;
                 },
                 [](Tensor& tensor) -> std::vector<Annotation>& { return tensor.annotations; },
                 [](Value& value) -> std::vector<Annotation>& { return value.annotations; },
                 [](Table& table) -> std::vector<Annotation>& { return table.annotations; }},
      content);
}

void SetGlobals(std::vector<Global> globals, Checkpoint& checkpoint) {
  if (globals.empty()) return;
  std::string all;
  std::string refused;
  for (const Global& global : globals) {
    const std::string text = json::String(global.name);
    all += fmt::format("{}{}", all.empty() ? "" : ",", text);
    if (global.is_refused) refused += fmt::format("{}{}", refused.empty() ? "" : ",", text);
  }
  checkpoint.annotations.emplace_back(kGlobalsAnnotation, fmt::format("[{}]", all));
  checkpoint.annotations.emplace_back(kRefusedGlobalsAnnotation, fmt::format("[{}]", refused));
  checkpoint.globals = std::move(globals);
}

}  // namespace ckptfs
