#include "tools/ckpt/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/error.h"
#include "tools/ckpt/array_text.h"
#include "tools/ckpt/entries.h"
#include "tools/ckpt/output.h"
#include "tools/ckpt/slice.h"
#include "tools/ckpt/statistics.h"

namespace ckptfs::ckpt {
namespace {

constexpr size_t kBins = 16;

std::string HistogramText(const Tensor& tensor, const Statistics& statistics) {
  const std::vector<uint64_t> bins =
      HistogramOf(tensor, ValueOf(statistics.min), ValueOf(statistics.max), kBins);
  const uint64_t most = std::ranges::max(bins);
  const double begin = ValueOf(statistics.min);
  const double step = (ValueOf(statistics.max) - begin) / static_cast<double>(kBins);
  std::string text;
  for (size_t i = 0; i < bins.size(); ++i) {
    constexpr double kWidth = 40;  // Columns of the largest bin.
    const auto width = static_cast<size_t>(
        std::ceil(kWidth * static_cast<double>(bins[i]) / static_cast<double>(most)));
    text += fmt::format("{:>12.5g} {:<40} {}\n", begin + step * static_cast<double>(i),
                        std::string(width, '#'), CountText(bins[i]));
  }
  return text;
}

}  // namespace

void Show(const Model& model, const std::string& key) {
  const Tensor tensor = SelectedTensor(model, key, Elements::kNumbers);
  if (!HasNumbers(tensor)) Fail(ENOTSUP, "{}: {}", Quoted(key), NoNumbersText(tensor));
  std::string text =
      fmt::format("{} {} {}\n", Printable(key), DtypeNameOf(tensor), ShapeText(tensor.shape));
  text += ArrayText(tensor) + "\n";
  const Statistics statistics = StatisticsOf(tensor, 0, ElementCountOf(tensor));
  if (statistics.finite() > 0) {
    text +=
        fmt::format("min {}  max {}  mean {:.6g}  deviation {:.6g}\n", NumberText(statistics.min),
                    NumberText(statistics.max), statistics.mean, statistics.Deviation());
  }
  text += fmt::format("zeros {}  NaN {}  infinities {}\n", CountText(statistics.zeros),
                      CountText(statistics.nans), CountText(statistics.infinities));
  if (ValueOf(statistics.min) < ValueOf(statistics.max)) text += HistogramText(tensor, statistics);
  Print(text);
}

}  // namespace ckptfs::ckpt
