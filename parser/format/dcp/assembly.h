// From chunks to a tensor.

#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

#include "parser/base/budget.h"
#include "parser/format/dcp/files.h"
#include "parser/format/dcp/losses.h"
#include "parser/format/dcp/metadata.h"

namespace ckptfs::dcp {

// Returns what a chunk of an item is, one of those whose places are told. Throws Error: EFBIG if
// that concerns all.
using ReadChunk = std::function<Content(size_t chunk)>;

// Returns the tensor that `item` tells about. Where chunks are damaged or missing, what is left can
// be read; if nothing is left, it has an error. If its only chunk turns out to be no tensor with
// bytes of its own, returns what that is. `index` is the file that told about it, `files` are those
// of its places.
//
// Throws Error only if `read` does with EFBIG or `budget` is used up.
Content AssembleTensor(const Item& item, std::string_view index, const Names& files,
                       const ReadChunk& read, Losses& losses, Budget& budget);

// What stands for a tensor of which nothing can be read: its bytes cannot be had for the reason
// `error`. A value if it is so large that nobody could have had it.
Content LostTensor(Tensor tensor, std::string_view error);

// What stands for a value that cannot be read.
Content LostValue(std::string_view error);

// Whether `content` is one of these.
bool IsLost(const Content& content);

}  // namespace ckptfs::dcp
