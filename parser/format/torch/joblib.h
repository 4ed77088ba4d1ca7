// What joblib.dump writes: a pickle between whose opcodes the elements of arrays lie.

#pragma once

#include <cstdint>

#include "parser/checkpoint.h"
#include "parser/codec/pickle.h"
#include "parser/format/archive/record.h"
#include "parser/format/torch/reading.h"

namespace ckptfs::torch {

// The class that stands for an array. A pickle that names it is read by ReadJoblib.
constexpr std::string_view kJoblibArray = "NumpyArrayWrapper";

// The attributes of `value` if that stands for an array: a dict; null of anything else. Points into
// the graph.
const pickle::Value* StateOfJoblibArray(const pickle::Value& value);

// Reads the pickle at the beginning of `record`, which has no error. Sets `length` to its bytes.
Checkpoint ReadJoblib(const Record& record, Reading& reading, uint64_t& length);

}  // namespace ckptfs::torch
