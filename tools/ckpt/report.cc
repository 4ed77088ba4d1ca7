#include "tools/ckpt/commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "fs/options.h"
#include "parser/base/error.h"
#include "parser/base/json.h"
#include "tools/ckpt/dequantize.h"
#include "tools/ckpt/facts.h"
#include "tools/ckpt/findings.h"
#include "tools/ckpt/model.h"
#include "tools/ckpt/output.h"
#include "tools/ckpt/report_page.h"

namespace ckptfs::ckpt {
namespace {

// Bins of the histogram of a tensor.
constexpr size_t kReportBins = 32;

// The figures of all tensors of a checkpoint, or none if they are not read.
struct ReportFigures {
  std::vector<Figures> figures;
  std::vector<std::vector<uint64_t>> histograms;
};

// A digit for each bin: 0 for none, else 1 to 63 of the largest bin.
std::string HistogramDigits(std::span<const uint64_t> bins) {
  constexpr std::string_view kDigits =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";
  std::string digits;
  if (bins.empty()) return digits;
  const auto most = static_cast<double>(std::ranges::max(bins));
  for (const uint64_t n : bins) {
    constexpr double kMost = 62;
    const auto height = static_cast<size_t>(kMost * static_cast<double>(n) / most);
    digits += kDigits[n == 0 ? 0 : height + 1];
  }
  return digits;
}

// [min, max, mean, deviation, zeros, NaN, infinities, histogram]
std::string FiguresJson(const Figures& figures, std::span<const uint64_t> histogram) {
  if (!figures.has_numbers || figures.error) return "null";
  const Statistics& statistics = figures.statistics;
  const std::string range =
      figures.HasRange()
          ? fmt::format("{},{},{},{}", NumberJson(statistics.min), NumberJson(statistics.max),
                        NumberJson(statistics.mean), NumberJson(statistics.Deviation()))
          : "null,null,null,null";
  return fmt::format(R"([{},{},{},{},"{}"])", range, statistics.zeros, statistics.nans,
                     statistics.infinities, HistogramDigits(histogram));
}

// [key, dtype, shape, bytes, index of the tensor it is tied to, error, figures]
std::string TensorJson(const Facts& facts, size_t index, const ReportFigures& all) {
  const TensorEntry& entry = facts.tensors[index];
  const Tensor& tensor = *entry.tensor;
  const bool is_tied = entry.tied_to != index;
  std::optional<Error> error = tensor.error;
  std::string figures = "null";
  if (!all.figures.empty()) {
    error = all.figures[index].error;
    figures = FiguresJson(all.figures[index], all.histograms[index]);
  }
  return fmt::format("[{},{},[{}],{},{},{},{}]", json::String(entry.key),
                     json::String(DtypeNameOf(tensor)), fmt::join(tensor.shape, ","),
                     tensor.data.length, is_tied ? fmt::to_string(entry.tied_to) : "null",
                     error ? json::String(MessageOf(error)) : "null", figures);
}

// Names with texts, as long as there is space: [name, text, size of the whole text]
class TextList {
 public:
  void Add(std::string_view name, std::string_view text) {
    constexpr size_t kMostText = 4096;  // Bytes.
    const std::string_view shown = text.substr(0, kMostText);
    if (name.size() + shown.size() > left_) {
      ++omitted_;
      return;
    }
    left_ -= name.size() + shown.size();
    items_.push_back(
        fmt::format("[{},{},{}]", json::String(name), json::String(shown), text.size()));
  }

  std::string Json() const { return JsonList(items_); }
  size_t omitted() const { return omitted_; }

 private:
  size_t left_ = size_t{1} << 20U;  // Bytes.
  size_t omitted_ = 0;
  std::vector<std::string> items_;
};

TextList TextsOf(const Checkpoint& checkpoint, const Facts& facts) {
  TextList texts;
  for (const auto& [name, value] : checkpoint.annotations) texts.Add(name, value);
  for (const Entry& entry : facts.entries) {
    if (const auto* const value = std::get_if<Value>(entry.content)) {
      texts.Add(entry.key, value->json);
    } else if (const auto* const table = std::get_if<ckptfs::Table>(entry.content)) {
      texts.Add(entry.key, fmt::format("{} of {} as lines of JSON",
                                       table->python_type.empty() ? "list" : table->python_type,
                                       SizeText(table->data.length)));
    }
  }
  return texts;
}

std::string DangersJson(const Checkpoint& checkpoint) {
  std::vector<std::string> globals;
  for (const Global& global : checkpoint.globals) {
    globals.push_back(fmt::format(R"([{},"{}"])", json::String(global.name),
                                  NameOf(DangerOf(global.name, global.is_refused))));
  }
  return JsonList(globals);
}

// In strings of JSON only: nothing else in it has that character.
std::string WithoutLessThan(std::string_view data) {
  std::string escaped;
  escaped.reserve(data.size());
  for (const char c : data) {
    if (c == '<') {
      escaped += "\\u003c";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

// Returns the data as JSON without the character "<", so that no text in it can end the element of
// HTML that it is in. Tensors take about 200 bytes each; the texts of values are shortened.
std::string ReportData(const Model& model, const Facts& facts, const ReportFigures& figures) {
  const Checkpoint& checkpoint = model.checkpoint();
  const TextList texts = TextsOf(checkpoint, facts);
  std::vector<std::string> tensors, warnings;
  for (size_t i = 0; i < facts.tensors.size(); ++i) {
    tensors.push_back("\n" + TensorJson(facts, i, figures));
  }
  for (const std::string& warning : checkpoint.warnings) warnings.push_back(json::String(warning));
  const bool has_values = !figures.figures.empty() || facts.tensors.empty();
  const std::pair<std::string_view, std::string> members[] = {
      {"source", json::String(model.name())},
      {"format", json::String(checkpoint.format)},
      {"parameters", fmt::to_string(facts.sum.parameters)},
      {"bytes", fmt::to_string(facts.sum.bytes)},
      {"dtypes", DtypesJson(facts)},
      {"warnings", JsonList(warnings)},
      {"globals", DangersJson(checkpoint)},
      {"values", texts.Json()},
      {"omitted_values", fmt::to_string(texts.omitted())},
      {"has_figures", has_values ? "true" : "false"},
      {"tensors", JsonList(tensors)},
  };
  return WithoutLessThan(json::Object(members));
}

ReportFigures ReadFigures(std::vector<TensorEntry> tensors) {
  const auto numbers = Dequantize(tensors);
  Progress progress(2 * BytesToRead(tensors));
  ReportFigures all;
  all.figures = FiguresOf(tensors, progress);
  all.histograms = HistogramsOf(tensors, all.figures, kReportBins, progress);
  return all;
}

}  // namespace

int Report(const Model& model, bool has_values, std::optional<OutputFile> out, Existing existing) {
  const Facts facts = FactsOf(model.checkpoint());
  ReportFigures figures;
  if (has_values) figures = ReadFigures(facts.tensors);
  std::string page(kPageBegin);
  page += ReportData(model, facts, figures);
  page += kPageEnd;
  if (out) {
    out->Write(0, std::as_bytes(std::span(page)));
    out->Sync();
    out->Commit(existing);
  } else {
    Print(page);
  }
  const bool has_errors =
      facts.errors > 0 || std::ranges::any_of(figures.figures, [](const Figures& tensor) {
        return tensor.error.has_value();
      });
  return has_errors ? static_cast<int>(ExitCode::kCorrupt) : 0;
}

}  // namespace ckptfs::ckpt
