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
  std::string descr;        // The stored type as JSON, with lists for tuples: "\"<f4\"".
  bool is_fortran = false;  // The first index changes fastest.
  std::vector<uint64_t> shape;
  uint64_t data_offset = 0;  // The offset of the elements in the array.
};

constexpr size_t kMagicSize = 6;  // Bytes.

// Whether `head`, the first bytes of a file, begins an array.
bool IsNpy(std::span<const std::byte> head);

// Reads the header of the array in the `length` bytes of `source` from `offset` on, which must lie
// within it: 256 bytes at once, and then the rest. Does not check that all elements are present.
// Charges `budget` for the text of the header, valid or not, and for the result. Throws Error:
// EBADMSG with the byte of the array at which it is corrupt, ENOTSUP for another version, EOVERFLOW
// beyond the limits, EFBIG beyond the budget, and the errors of reading.
ArrayHeader ReadHeader(const ByteSource& source, uint64_t offset, uint64_t length, Budget& budget);

constexpr size_t kHead = 256;  // Bytes: enough for all headers except those of structures.

// Returns the first `most` bytes of an array, or all if it has fewer.
using ReadHead = std::function<std::vector<std::byte>(size_t most)>;

// The same for an array of `length` bytes: requests kHead bytes, and the whole header if it is
// longer.
ArrayHeader ReadHeader(const ReadHead& read_head, uint64_t length, Budget& budget);

}  // namespace ckptfs::npy
