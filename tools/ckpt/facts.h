// Facts about a checkpoint, which its headers contain (tensors, values, sums by dtype, ties), and
// figures of its tensors, which take reading their bytes.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "parser/base/error.h"
#include "tools/ckpt/entries.h"
#include "tools/ckpt/progress.h"
#include "tools/ckpt/statistics.h"

namespace ckptfs::ckpt {

struct DtypeSum {
  uint64_t tensors = 0;
  uint64_t parameters = 0;
  uint64_t bytes = 0;
};

// Tied tensors count once in sums of parameters and bytes. Belongs to a checkpoint that outlives
// it.
struct Facts {
  std::vector<Entry> entries;
  std::vector<TensorEntry> tensors;
  DtypeSum sum;
  std::map<std::string, DtypeSum> dtypes;
  std::map<size_t, std::vector<size_t>> ties;  // By the first tensor: those that are tied to it.
  size_t errors = 0;                           // Tensors that cannot be read.
};

Facts FactsOf(const Checkpoint& checkpoint);

// Returns the dtypes as an object: {"float32":{"tensors":1,"parameters":2,"bytes":8}}.
std::string DtypesJson(const Facts& facts);

// Returns the texts, which are JSON, as a list.
std::string JsonList(const std::vector<std::string>& items);

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

// Returns the histogram of each tensor, from its smallest to its largest element; an empty one if
// all are equal or it has no elements. Reads the tensors in several threads, and sets the error of
// `figures`, which are theirs, for those that cannot be read.
std::vector<std::vector<uint64_t>> HistogramsOf(std::span<const TensorEntry> tensors,
                                                std::span<Figures> figures, size_t bins,
                                                Progress& progress);

}  // namespace ckptfs::ckpt
