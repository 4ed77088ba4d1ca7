// Objects of tensordict in pickles: TensorDicts, lazy stacks, tensorclasses, and values in them.

#pragma once

#include <cstdint>
#include <vector>

#include "parser/base/budget.h"
#include "parser/codec/pickle.h"
#include "parser/format/torch/python.h"

namespace ckptfs::torch {

// Fills in `interpretation` if `value` is a collection: its members, and the text from which
// load_memmap restores it. Returns whether it is one. Charges `budget`. Throws Error(EFBIG).
bool InterpretCollection(const pickle::Value& value, Interpretation& interpretation,
                         Budget& budget);

// The batch size of `value` if it is one value for a whole batch (a NonTensorData), of a sane
// number of dimensions; else empty.
std::vector<uint64_t> BatchSizeOfValue(const pickle::Value& value);

// Returns the data of a NonTensorData, or the TensorDict that a TensorDictParams has; null of
// anything else. Points into the graph.
const pickle::Value* DataOfCollection(const pickle::Value& value);

}  // namespace ckptfs::torch
