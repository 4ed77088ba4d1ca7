#include "tools/ckpt/commands.h"

#include <algorithm>
#include <span>
#include <vector>

#include "fs/options.h"
#include "tools/ckpt/dequantize.h"
#include "tools/ckpt/output.h"
#include "tools/ckpt/report_data.h"
#include "tools/ckpt/report_page.h"

namespace ckptfs::ckpt {
namespace {

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
