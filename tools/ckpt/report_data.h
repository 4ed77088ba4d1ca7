// The data of the page of ckpt report.

#pragma once

#include <span>
#include <string>
#include <vector>

#include "tools/ckpt/facts.h"
#include "tools/ckpt/model.h"

namespace ckptfs::ckpt {

// Bins of the histogram of a tensor.
constexpr size_t kReportBins = 32;

// The figures of all tensors of a checkpoint, or none if they are not read.
struct ReportFigures {
  std::vector<Figures> figures;
  std::vector<std::vector<uint64_t>> histograms;
};

// Returns the data as JSON without the character "<", so that no text in it can end the element of
// HTML that it is in. Tensors take about 200 bytes each; the texts of values are shortened.
std::string ReportData(const Model& model, const Facts& facts, const ReportFigures& figures);

}  // namespace ckptfs::ckpt
