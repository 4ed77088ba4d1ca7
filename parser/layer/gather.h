// Reading and conversion of the elements of a strided tensor.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "parser/base/dtype.h"
#include "parser/io/byte_source.h"

namespace ckptfs {

// How the stored elements differ from those of the tensor.
struct Storing {
  bool is_big_endian = false;
  bool is_conjugated = false;  // The tensor has the conjugates; real numbers are their own.
  bool is_negated = false;     // The tensor has the negatives.
};

bool IsComplex(Dtype dtype);

// Converts stored elements in place.
class Conversion {
 public:
  // Throws Error(ENOTSUP) for negatives of a type that has none.
  Conversion(Dtype dtype, const Storing& storing);

  // Converts elements. The size of `bytes` is a multiple of that of an element.
  void Apply(std::span<std::byte> bytes) const;

 private:
  enum class Negation : uint8_t {
    kNone,
    kSignBit,        // At every `sign_step_` bytes.
    kTwoComplement,  // Of unsigned integers too, as in PyTorch.
    kSignUnlessNan,  // Zero has no sign: its negative would be the only NaN.
  };

  static Negation NegationOf(Dtype dtype);

  uint8_t item_size_;
  uint8_t swap_size_ = 1;   // Bytes that are reversed.
  uint8_t sign_first_ = 0;  // The first byte with a sign to flip, ...
  uint8_t sign_step_ = 1;   // ... and the distance to the next.
  Negation negation_ = Negation::kNone;
};

// Copies a box of elements at regular distances in a source to regular distances in memory.
//
// A transposed matrix, a slice of its columns and an expanded tensor are boxes: each axis has a
// number of steps, and the distances of a step in the source and in memory. Copying element by
// element would take a read for each. Instead the axes are sorted by their distance in the source,
// and the nearest ones form a *run*, a range of the source that is read at once, including gaps
// that cost less than another read. Runs are read into a *tile*, a buffer that fits the processor's
// cache, from which the elements are copied to memory.

struct Axis {
  uint64_t extent = 0;  // Steps, at least 1.
  uint64_t from = 0;    // Bytes of a step in the source; may be 0.
  uint64_t to = 0;      // Bytes of a step in memory.
};

struct Box {
  uint64_t offset = 0;   // Of the first element in the source, in bytes.
  size_t item_size = 0;  // 1, 2, 4, 8 or 16 bytes.
  std::vector<Axis> axes;
};

// Returns the cost of Gather, as the number of bytes that could be copied in the same time.
double GatherCost(const Box& box);

// Copies the elements of `box` to `memory`, the address of the first one. All of the box must lie
// within source and memory. Takes at most 64 KiB of memory. Throws as ByteSource::ReadAt does.
void Gather(const ByteSource& source, const Box& box, std::byte* memory);

}  // namespace ckptfs
