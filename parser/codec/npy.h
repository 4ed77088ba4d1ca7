// The header of an array that NumPy saved: https://numpy.org/neps/nep-0001-npy-format.html.
//
//   offset  size    field
//   0       6       magic "\x93NUMPY"
//   6       1 + 1   version: 1.0, 2.0 or 3.0
//   8       2 or 4  length of the text (4 since 2.0)
//   10, 12          text: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
//                   elements, to the end

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "parser/base/budget.h"
#include "parser/codec/npy/type.h"
#include "parser/io/byte_source.h"

namespace ckptfs::npy {

struct ArrayHeader {
  Type type;
  std::string descr;  // The type as the file has it, in JSON, with lists for tuples: "\"<f4\"".
  bool is_fortran = false;  // The first index is the one that changes fastest.
  std::vector<uint64_t> shape;
  uint64_t data_offset = 0;  // Where the elements begin, from the beginning of the array on.
};

constexpr size_t kMagicSize = 6;  // Bytes.

// Whether `head`, the first bytes of a file, begins an array.
bool IsNpy(std::span<const std::byte> head);

// Reads the header of the array that the `length` bytes of `source` from `offset` are, which must
// lie within it: 256 bytes at once, and the rest if there is more of it. Whether all elements are
// there is not looked at. Its text, damaged or not, and what is kept of it is charged to `budget`,
// and never given back. Throws Error: EBADMSG with the byte of the array at which it is damaged,
// ENOTSUP if it is of another version, EOVERFLOW if it is beyond our limits, EFBIG if it is beyond
// the budget, and what reading throws.
ArrayHeader ReadHeader(const ByteSource& source, uint64_t offset, uint64_t length, Budget& budget);

constexpr size_t kHead = 256;  // Bytes: what all arrays but structures have for a header, and more.

// Returns the first `most` bytes of an array, or all if it has fewer.
using ReadHead = std::function<std::vector<std::byte>(size_t most)>;

// As the other one, of an array of `length` bytes: asks for kHead bytes, and if the header is
// longer, for all of it.
ArrayHeader ReadHeader(const ReadHead& read_head, uint64_t length, Budget& budget);

}  // namespace ckptfs::npy
