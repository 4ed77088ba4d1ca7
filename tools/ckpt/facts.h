// What a checkpoint consists of: its tensors and values, sums by dtype, and ties.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/ckpt/entries.h"

namespace ckptfs::ckpt {

struct DtypeSum {
  uint64_t tensors = 0;
  uint64_t parameters = 0;
  uint64_t bytes = 0;
};

// Tied tensors count once in sums of parameters and bytes. Belongs to a checkpoint that outlives it.
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

}  // namespace ckptfs::ckpt
