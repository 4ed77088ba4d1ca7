#include "tools/ckpt/facts.h"

#include <fmt/format.h>

#include <algorithm>

#include "parser/base/json.h"
#include "tools/ckpt/parallel.h"

namespace ckptfs::ckpt {
namespace {

void AddTo(DtypeSum& sum, const Tensor& tensor, bool is_tied) {
  ++sum.tensors;
  if (is_tied) return;
  sum.parameters += ElementCountOf(tensor);
  sum.bytes += tensor.data.length;
}

}  // namespace

Facts FactsOf(const Checkpoint& checkpoint) {
  Facts facts;
  facts.entries = EntriesOf(checkpoint);
  facts.tensors = TensorsOf(facts.entries);
  for (size_t i = 0; i < facts.tensors.size(); ++i) {
    const Tensor& tensor = *facts.tensors[i].tensor;
    const bool is_tied = facts.tensors[i].tied_to != i;
    AddTo(facts.sum, tensor, is_tied);
    AddTo(facts.dtypes[DtypeNameOf(tensor)], tensor, is_tied);
    if (is_tied) facts.ties[facts.tensors[i].tied_to].push_back(i);
    if (tensor.error) ++facts.errors;
  }
  return facts;
}

std::string DtypesJson(const Facts& facts) {
  std::vector<std::string> dtypes;
  for (const auto& [name, sum] : facts.dtypes) {
    dtypes.push_back(fmt::format(R"({}:{{"tensors":{},"parameters":{},"bytes":{}}})",
                                 json::String(name), sum.tensors, sum.parameters, sum.bytes));
  }
  return fmt::format("{{{}}}", fmt::join(dtypes, ","));
}

std::string JsonList(const std::vector<std::string>& items) {
  return fmt::format("[{}]", fmt::join(items, ","));
}

namespace {

// Elements of a tensor that one thread reads.
struct Piece {
  size_t tensor = 0;
  uint64_t begin = 0;
  uint64_t end = 0;
  Statistics statistics;
  std::optional<Error> error;
};

bool IsRead(const Tensor& tensor) { return !tensor.error && HasNumbers(tensor); }

std::vector<Piece> PiecesOf(std::span<const TensorEntry> tensors) {
  constexpr uint64_t kMostElements = uint64_t{4} << 20U;  // ... unless that were too many pieces.
  constexpr uint64_t kMostPieces = 4096;
  std::vector<Piece> pieces;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = *tensors[i].tensor;
    if (!IsRead(tensor)) continue;
    const uint64_t count = ElementCountOf(tensor);
    const uint64_t most = std::max(kMostElements, count / kMostPieces);
    uint64_t begin = 0;
    do {
      const uint64_t end = std::min(count, begin + most);
      pieces.push_back({.tensor = i, .begin = begin, .end = end, .statistics = {}, .error = {}});
      begin = end;
    } while (begin < count);
  }
  return pieces;
}

void ReadPiece(Piece& piece, const Tensor& tensor, Progress& progress) {
  try {
    piece.statistics = StatisticsOf(tensor, piece.begin, piece.end);
  } catch (const Error& error) {
    piece.error = error;
  }
  progress.Add((piece.end - piece.begin) * ItemSize(tensor.dtype));
}

}  // namespace

uint64_t BytesToRead(std::span<const TensorEntry> tensors) {
  uint64_t bytes = 0;
  for (const TensorEntry& entry : tensors) {
    if (IsRead(*entry.tensor)) bytes += entry.tensor->data.length;
  }
  return bytes;
}

std::vector<Figures> FiguresOf(std::span<const TensorEntry> tensors, Progress& progress) {
  std::vector<Piece> pieces = PiecesOf(tensors);
  InParallel(pieces.size(),
             [&](size_t i) { ReadPiece(pieces[i], *tensors[pieces[i].tensor].tensor, progress); });
  std::vector<Figures> figures(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    figures[i].error = tensors[i].tensor->error;
    figures[i].has_numbers = HasNumbers(*tensors[i].tensor);
  }
  for (const Piece& piece : pieces) {  // In order, so that sums are the same each time.
    figures[piece.tensor].statistics.Add(piece.statistics);
    if (piece.error) figures[piece.tensor].error = piece.error;
  }
  return figures;
}

std::vector<std::vector<uint64_t>> HistogramsOf(std::span<const TensorEntry> tensors,
                                                std::span<Figures> figures, size_t bins,
                                                Progress& progress) {
  std::vector<std::vector<uint64_t>> histograms(tensors.size());
  // In order: a source that decompresses is read from the beginning to the end once.
  InParallel(tensors.size(), [&](size_t i) {
    const Tensor& tensor = *tensors[i].tensor;
    if (!IsRead(tensor)) return;
    const double min = ValueOf(figures[i].statistics.min);
    const double max = ValueOf(figures[i].statistics.max);
    try {
      if (figures[i].HasRange() && min < max) histograms[i] = HistogramOf(tensor, min, max, bins);
    } catch (const Error& error) {
      figures[i].error = error;
    }
    progress.Add(tensor.data.length);
  });
  return histograms;
}

}  // namespace ckptfs::ckpt
