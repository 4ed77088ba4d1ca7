// Finds the end of a pickle, and runs pickles with gaps and corrupt ones, without reading them into
// memory first.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/codec/pickle.h"
#include "parser/io/byte_source.h"

namespace ckptfs::pickle {

// Returns the length of the pickle at the beginning of `data`, up to and including STOP. Reads it
// once, in pieces, and runs nothing. Counts the bytes as work, and grows the budget for them.
// Throws Error: EBADMSG with the offset for an invalid pickle, EFBIG for one that is longer than
// the machine runs.
uint64_t LengthOf(const Extent& data, Budget& budget);

// The same, but returns nothing as soon as a class, a function or a short text is called `name`.
std::optional<uint64_t> LengthUnless(const Extent& data, std::string_view name, Budget& budget);

// Bytes between two opcodes of a pickle, as joblib writes its arrays.
struct Gap {
  uint64_t length = 0;               // In bytes.
  std::optional<Value> replacement;  // Of the object before it; must live as long as the graph.
};

// Returns the gap after BUILD of the object `built`, at the byte `position`. May throw Error.
using FindGap = std::function<Gap(const Value& built, uint64_t position)>;

// Runs the pickle at the beginning of `data` as Load does, but calls `find` after each BUILD. The
// result owns its memory: nothing points into `data`. Throws Error as Load does, EBADMSG if a gap
// ends after `data`, and the errors of reading. Sets `length` to the length of the pickle, gaps
// included.
Graph LoadWithGaps(const Extent& data, Budget& budget, const FindGap& find, uint64_t& length);

// A pickle that was run up to its end, or up to an error.
struct PartialRun {
  Graph graph;                 // Lists the calls. Has no root if there is an error.
  uint64_t length = 0;         // Of the part that was run, in bytes.
  std::optional<Error> error;  // As Load throws, or that of reading.
  bool has_more = false;       // There is an error, and then imports, and the end of the pickle.
};

// Runs the pickle at the beginning of `data` as Load does, as far as a real unpickler would run it
// or further. Nothing in the result points into `data`. Throws nothing but std::bad_alloc.
PartialRun RunPartly(const Extent& data, Budget& budget);

// Whether another pickle begins at `data`, after one whose first byte is `first`. A pickle without
// PROTO follows only another one without it.
bool IsNextPickle(const Extent& data, std::byte first);

}  // namespace ckptfs::pickle
