#include "tools/ckpt/commands.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "fs/options.h"
#include "parser/base/error.h"
#include "parser/base/json.h"
#include "tools/ckpt/dequantize.h"
#include "tools/ckpt/entries.h"
#include "tools/ckpt/facts.h"
#include "tools/ckpt/progress.h"
#include "tools/ckpt/statistics.h"

namespace ckptfs::ckpt {
namespace {

std::string JsonOf(const TensorEntry& entry, const Figures& figures) {
  const Statistics& statistics = figures.statistics;
  const bool is_known = figures.HasRange();
  const auto or_null = [&](const std::string& text) { return is_known ? text : "null"; };
  const std::pair<std::string_view, std::string> members[] = {
      {"key", json::String(entry.key)},
      {"dtype", json::String(DtypeNameOf(*entry.tensor))},
      {"count", fmt::to_string(ElementCountOf(*entry.tensor))},
      {"min", or_null(NumberJson(statistics.min))},
      {"max", or_null(NumberJson(statistics.max))},
      {"mean", or_null(NumberJson(statistics.mean))},
      {"deviation", or_null(NumberJson(statistics.Deviation()))},
      {"zeros", fmt::to_string(statistics.zeros)},
      {"nans", fmt::to_string(statistics.nans)},
      {"infinities", fmt::to_string(statistics.infinities)},
      {"error", figures.error ? json::String(MessageOf(figures.error)) : "null"},
  };
  return json::Object(members);
}

std::vector<std::string> CellsOf(const TensorEntry& entry, const Figures& figures) {
  std::vector<std::string> cells = {entry.key, DtypeNameOf(*entry.tensor),
                                    ShapeText(entry.tensor->shape)};
  const Statistics& statistics = figures.statistics;
  if (figures.HasRange()) {
    cells.push_back(fmt::format("{:.6g}", ValueOf(statistics.min)));
    cells.push_back(fmt::format("{:.6g}", ValueOf(statistics.max)));
    cells.push_back(fmt::format("{:.6g}", statistics.mean));
    cells.push_back(fmt::format("{:.6g}", statistics.Deviation()));
  } else {
    cells.resize(cells.size() + 4);
  }
  const bool is_known = figures.has_numbers && !figures.error;
  for (const uint64_t n : {statistics.zeros, statistics.nans, statistics.infinities}) {
    cells.push_back(is_known ? fmt::to_string(n) : "");
  }
  cells.push_back(figures.error          ? fmt::format("error: {}", MessageOf(figures.error))
                  : !figures.has_numbers ? NoNumbersText(*entry.tensor)
                                         : "");
  return cells;
}

}  // namespace

int Measure(const Model& model, const StatOptions& options) {
  const std::vector<Entry> entries = EntriesOf(model.checkpoint());
  std::vector<TensorEntry> tensors = TensorsOf(entries);
  std::erase_if(tensors, [&](const TensorEntry& t) { return !Matches(t.key, options.pattern); });
  if (tensors.empty() && !options.pattern.empty()) {
    Fail(ENOENT, "{}: no tensor matches {}", model.name(), Quoted(options.pattern));
  }
  const auto numbers = Dequantize(tensors);
  Progress progress(BytesToRead(tensors));
  const std::vector<Figures> figures = FiguresOf(tensors, progress);
  Table table({{"key", Align::kLeft},
               {"dtype", Align::kLeft},
               {"shape", Align::kLeft},
               {"min", Align::kRight},
               {"max", Align::kRight},
               {"mean", Align::kRight},
               {"deviation", Align::kRight},
               {"zeros", Align::kRight},
               {"NaN", Align::kRight},
               {"infinities", Align::kRight},
               {"note", Align::kLeft}});
  std::string json = "[";
  int status = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (options.format == OutputFormat::kJson) {
      json += (i == 0 ? "\n" : ",\n") + JsonOf(tensors[i], figures[i]);
    } else {
      table.Add(CellsOf(tensors[i], figures[i]));
    }
    const Statistics& statistics = figures[i].statistics;
    if (options.is_check && statistics.nans + statistics.infinities > 0) status = 1;
    if (figures[i].error) status = static_cast<int>(ExitCode::kCorrupt);
  }
  switch (options.format) {
    case OutputFormat::kJson:
      Print(json + "\n]\n");
      break;
    case OutputFormat::kCsv:
      Print(table.Csv());
      break;
    case OutputFormat::kText:
      Print(table.Text(HasColours()));
      break;
  }
  return status;
}

}  // namespace ckptfs::ckpt
