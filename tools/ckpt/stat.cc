#include "tools/ckpt/stat.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "fs/options.h"
#include "parser/base/error.h"
#include "parser/base/json.h"
#include "tools/ckpt/entries.h"
#include "tools/ckpt/parallel.h"
#include "tools/ckpt/progress.h"
#include "tools/ckpt/statistics.h"

namespace ckptfs::ckpt {
namespace {

// Elements of a tensor that one thread reads.
struct Part {
  size_t tensor = 0;
  uint64_t begin = 0;
  uint64_t end = 0;
  Statistics statistics;
  std::optional<Error> error;
};

std::vector<Part> PartsOf(std::span<const TensorEntry> tensors) {
  constexpr uint64_t kMostElements = uint64_t{4} << 20U;
  std::vector<Part> parts;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = *tensors[i].tensor;
    if (tensor.error || !HasNumbers(tensor)) continue;
    const uint64_t count = ElementCountOf(tensor);
    uint64_t begin = 0;
    do {
      const uint64_t end = std::min(count, begin + kMostElements);
      parts.push_back({.tensor = i, .begin = begin, .end = end, .statistics = {}, .error = {}});
      begin = end;
    } while (begin < count);
  }
  return parts;
}

void Run(Part& part, const Tensor& tensor, Progress& progress) {
  try {
    part.statistics = StatisticsOf(tensor, part.begin, part.end);
  } catch (const Error& error) {
    part.error = error;
  }
  progress.Add((part.end - part.begin) * ItemSize(tensor.dtype));
}

void RunAll(std::span<Part> parts, std::span<const TensorEntry> tensors) {
  uint64_t bytes = 0;
  for (const Part& part : parts) {
    bytes += (part.end - part.begin) * ItemSize(tensors[part.tensor].tensor->dtype);
  }
  Progress progress(bytes);
  InParallel(parts.size(),
             [&](size_t i) { Run(parts[i], *tensors[parts[i].tensor].tensor, progress); });
}

struct Row {
  Statistics statistics;
  std::optional<Error> error;
  bool has_numbers = false;
};

std::vector<Row> RowsOf(std::span<const TensorEntry> tensors, std::span<const Part> parts) {
  std::vector<Row> rows(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    rows[i].error = tensors[i].tensor->error;
    rows[i].has_numbers = HasNumbers(*tensors[i].tensor);
  }
  for (const Part& part : parts) {  // In order, so that sums are the same each time.
    rows[part.tensor].statistics.Add(part.statistics);
    if (part.error) rows[part.tensor].error = part.error;
  }
  return rows;
}

std::string NumberJson(const Number& number) {
  return std::isfinite(ValueOf(number)) ? NumberText(number) : "null";
}

std::string JsonOf(const TensorEntry& entry, const Row& row) {
  const Statistics& figures = row.statistics;
  const bool is_known = row.has_numbers && !row.error && figures.finite() > 0;
  const auto or_null = [&](const std::string& text) { return is_known ? text : "null"; };
  const std::pair<std::string_view, std::string> members[] = {
      {"key", json::String(entry.key)},
      {"dtype", json::String(DtypeNameOf(*entry.tensor))},
      {"count", fmt::to_string(ElementCountOf(*entry.tensor))},
      {"min", or_null(NumberJson(figures.min))},
      {"max", or_null(NumberJson(figures.max))},
      {"mean", or_null(NumberJson(figures.mean))},
      {"deviation", or_null(NumberJson(figures.Deviation()))},
      {"zeros", fmt::to_string(figures.zeros)},
      {"nans", fmt::to_string(figures.nans)},
      {"infinities", fmt::to_string(figures.infinities)},
      {"error", row.error ? json::String(MessageOf(row.error)) : "null"},
  };
  return json::Object(members);
}

std::vector<std::string> CellsOf(const TensorEntry& entry, const Row& row) {
  std::vector<std::string> cells = {entry.key, DtypeNameOf(*entry.tensor),
                                    ShapeText(entry.tensor->shape)};
  const Statistics& figures = row.statistics;
  const bool is_known = row.has_numbers && !row.error;
  if (is_known && figures.finite() > 0) {
    cells.push_back(fmt::format("{:.6g}", ValueOf(figures.min)));
    cells.push_back(fmt::format("{:.6g}", ValueOf(figures.max)));
    cells.push_back(fmt::format("{:.6g}", figures.mean));
    cells.push_back(fmt::format("{:.6g}", figures.Deviation()));
  } else {
    cells.resize(cells.size() + 4);
  }
  for (const uint64_t n : {figures.zeros, figures.nans, figures.infinities}) {
    cells.push_back(is_known ? fmt::to_string(n) : "");
  }
  cells.push_back(row.error          ? fmt::format("error: {}", MessageOf(row.error))
                  : !row.has_numbers ? "not numbers"
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
  std::vector<Part> parts = PartsOf(tensors);
  RunAll(parts, tensors);
  const std::vector<Row> rows = RowsOf(tensors, parts);
  using Align = Table::Align;
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
      json += (i == 0 ? "\n" : ",\n") + JsonOf(tensors[i], rows[i]);
    } else {
      table.Add(CellsOf(tensors[i], rows[i]));
    }
    const Statistics& figures = rows[i].statistics;
    if (options.is_check && figures.nans + figures.infinities > 0) status = 1;
    if (rows[i].error) status = static_cast<int>(ExitCode::kCorrupt);
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
