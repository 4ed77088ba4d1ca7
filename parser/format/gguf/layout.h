// Where the bytes of tensors are.
//
// Behind the header comes padding up to a multiple of the alignment, and there the data begins that
// offsets count from. A tensor begins at a multiple of the alignment, too. ggml wants them one
// behind the other in the order of the header, with nothing but padding between them; other writers
// have left gaps, and other orders.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parser/base/budget.h"
#include "parser/format/gguf/header.h"

namespace ckptfs::gguf {

constexpr uint32_t kUsualAlignment = 32;  // Where the metadata does not tell another.

// Where one tensor is.
struct Place {
  uint64_t offset = 0;  // In the file, in bytes.
  uint64_t length = 0;  // In bytes.
  std::string error;    // Not empty: why there can be no such tensor.
};

// Returns the places of all entries of `header`, which is that of a file of `file_size` bytes. A
// tensor of a type that nobody knows reaches to the next one, or to the end of the file. Throws
// Error if one is not where it can be: beyond the file, not aligned, or in another one.
std::vector<Place> PlacesOf(const Header& header, uint64_t alignment, uint64_t file_size,
                            Budget& budget);

// Where a file ends, padding included, whose data was written with that alignment as ggml wants it.
// Nothing if that cannot be told, because a type is not known.
std::optional<uint64_t> EndOf(const Header& header, uint64_t alignment);

}  // namespace ckptfs::gguf
