// The figures of many tensors, which several threads read.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "parser/base/error.h"
#include "tools/ckpt/entries.h"
#include "tools/ckpt/progress.h"
#include "tools/ckpt/statistics.h"

namespace ckptfs::ckpt {

struct Figures {
  Statistics statistics;
  std::optional<Error> error;  // Set: the tensor cannot be read.
  bool has_numbers = false;    // See HasNumbers.

  // Whether there is a smallest element, a largest, and a mean.
  bool HasRange() const { return has_numbers && !error && statistics.finite() > 0; }
};

// Returns how many bytes FiguresOf reads.
uint64_t BytesToRead(std::span<const TensorEntry> tensors);

// Returns the figures of each tensor. Reads all that have numbers, in several threads.
std::vector<Figures> FiguresOf(std::span<const TensorEntry> tensors, Progress& progress);

// Returns the histogram of each tensor, from its smallest to its largest element; an empty one if all
// are equal or there is none. Reads the tensors in several threads, and sets the error of `figures`,
// which are theirs, for those that cannot be read.
std::vector<std::vector<uint64_t>> HistogramsOf(std::span<const TensorEntry> tensors,
                                                std::span<Figures> figures, size_t bins,
                                                Progress& progress);

}  // namespace ckptfs::ckpt
