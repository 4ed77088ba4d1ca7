#include "tools/ckpt/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "parser/base/error.h"
#include "parser/base/json.h"
#include "tools/ckpt/facts.h"

namespace ckptfs::ckpt {
namespace {

std::string TiesJson(const Facts& facts) {
  std::vector<std::string> groups;
  for (const auto& [first, others] : facts.ties) {
    std::vector<std::string> keys = {json::String(facts.tensors[first].key)};
    for (const size_t i : others) keys.push_back(json::String(facts.tensors[i].key));
    groups.push_back(JsonList(keys));
  }
  return JsonList(groups);
}

std::string GlobalsJson(const Checkpoint& checkpoint) {
  std::vector<std::string> globals;
  for (const Global& global : checkpoint.globals) {
    globals.push_back(
        fmt::format(R"({{"name":{},"refused":{}}})", json::String(global.name), global.is_refused));
  }
  return JsonList(globals);
}

std::string Json(const Model& model, const Facts& facts) {
  const Checkpoint& checkpoint = model.checkpoint();
  std::vector<std::string> annotations, values, warnings;
  for (const auto& [name, value] : checkpoint.annotations) {
    annotations.push_back(json::String(name) + ":" + value);
  }
  for (const Entry& entry : facts.entries) {
    const auto* const value = std::get_if<Value>(entry.content);
    if (value != nullptr) values.push_back(json::String(entry.key) + ":" + value->json);
  }
  for (const std::string& warning : checkpoint.warnings) warnings.push_back(json::String(warning));
  const std::pair<std::string_view, std::string> members[] = {
      {"source", json::String(model.name())},
      {"format", json::String(checkpoint.format)},
      {"tensors", fmt::to_string(facts.sum.tensors)},
      {"parameters", fmt::to_string(facts.sum.parameters)},
      {"bytes", fmt::to_string(facts.sum.bytes)},
      {"errors", fmt::to_string(facts.errors)},
      {"dtypes", DtypesJson(facts)},
      {"ties", TiesJson(facts)},
      {"annotations", fmt::format("{{{}}}", fmt::join(annotations, ","))},
      {"globals", GlobalsJson(checkpoint)},
      {"warnings", JsonList(warnings)},
      {"values", fmt::format("{{{}}}", fmt::join(values, ","))},
  };
  return json::Object(members) + "\n";
}

// The first characters of a text, on one line.
std::string Shortened(std::string_view text) {
  constexpr size_t kMost = 60;
  const std::string line = Printable(text.substr(0, kMost));
  return text.size() > kMost ? line + "..." : line;
}

void AddLine(std::string& text, std::string_view name, const std::string& value) {
  text += fmt::format("{:<12} {}\n", name, value);
}

std::string Text(const Model& model, const Facts& facts) {
  const Checkpoint& checkpoint = model.checkpoint();
  std::string text;
  AddLine(text, "source", Printable(model.name()));
  AddLine(text, "format", std::string(checkpoint.format));
  for (const auto& [name, value] : checkpoint.annotations) AddLine(text, name, Shortened(value));
  AddLine(text, "tensors", CountText(facts.sum.tensors));
  AddLine(text, "parameters", CountText(facts.sum.parameters));
  AddLine(text, "bytes",
          fmt::format("{} ({})", CountText(facts.sum.bytes), SizeText(facts.sum.bytes)));
  if (facts.errors > 0) AddLine(text, "errors", fmt::format("{} tensors", facts.errors));
  for (const auto& [name, sum] : facts.dtypes) {
    text += fmt::format("  {:<16} {:>8} tensors {:>16} parameters {:>10}\n", Printable(name),
                        CountText(sum.tensors), CountText(sum.parameters), SizeText(sum.bytes));
  }
  for (const auto& [first, others] : facts.ties) {
    for (const size_t i : others) {
      AddLine(text, "tied",
              Printable(fmt::format("{} = {}", facts.tensors[i].key, facts.tensors[first].key)));
    }
  }
  const auto refused = std::ranges::count(checkpoint.globals, true, &Global::is_refused);
  if (!checkpoint.globals.empty()) {
    AddLine(
        text, "imports",
        fmt::format("{} globals, {} refused by weights_only", checkpoint.globals.size(), refused));
  }
  for (const Global& global : checkpoint.globals) {
    if (global.is_refused) text += fmt::format("  refused: {}\n", Printable(global.name));
  }
  bool has_values = false;
  for (const Entry& entry : facts.entries) {
    const auto* const value = std::get_if<Value>(entry.content);
    if (value == nullptr) continue;
    if (!std::exchange(has_values, true)) text += "values\n";
    text += fmt::format("  {} = {}\n", Shortened(entry.key), Shortened(value->json));
  }
  return text;
}

}  // namespace

void Describe(const Model& model, OutputFormat format) {
  const Facts facts = FactsOf(model.checkpoint());
  Print(format == OutputFormat::kJson ? Json(model, facts) : Text(model, facts));
}

}  // namespace ckptfs::ckpt
