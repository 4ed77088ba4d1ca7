// What the parts of the torch reader share while they read one pickle.

#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>

#include "parser/base/budget.h"
#include "parser/codec/pickle.h"
#include "parser/format/torch/nested.h"
#include "parser/format/torch/reading.h"
#include "parser/format/torch/storage.h"
#include "parser/io/byte_source.h"

namespace ckptfs::torch {

// Where the elements of arrays lie that are not in their pickle: see joblib.h.
using RawArrays = std::unordered_map<const pickle::Node*, Extent>;

// Belongs to one thread.
struct Context {
  Reading& reading;
  Storages& storages;
  bool is_big_endian = false;  // The storages are.

  // The pickle: its bytes, and where they lie if they lie in a file as they are.
  std::span<const std::byte> pickle;
  Record pickle_record;

  // Sources of tensors that must be gathered, by what they show, so that tied ones share theirs.
  std::unordered_map<std::string, ByteSourcePtr> gathered = {};

  // Storages that are files inside of the pickle.
  NestedStorages nested = {};

  RawArrays raw_arrays = {};

  Budget& budget = reading.budget;
};

}  // namespace ckptfs::torch
