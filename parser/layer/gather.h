// How elements of a strided tensor are read and converted.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "parser/base/dtype.h"
#include "parser/io/byte_source.h"

namespace ckptfs {

// Which elements are stored, compared with those that the tensor has.
struct Storing {
  bool is_big_endian = false;
  bool is_conjugated = false;  // The tensor has the conjugates; real numbers are their own.
  bool is_negated = false;     // The tensor has the negatives.
};

bool IsComplex(Dtype dtype);

// Makes elements from stored ones, in place.
class Conversion {
 public:
  // Throws Error(ENOTSUP) if negatives are asked for of a type that has none.
  Conversion(Dtype dtype, const Storing& storing);

  // Converts elements. The size of `bytes` is a multiple of that of an element.
  void Apply(std::span<std::byte> bytes) const;

 private:
  enum class Negation : uint8_t {
    kNone,
    kSignBit,        // At every `sign_step_` bytes.
    kTwoComplement,  // Of unsigned integers too, as PyTorch has it.
    kSignUnlessNan,  // Zero has no sign: its negative would be the only NaN.
  };

  static Negation NegationOf(Dtype dtype);

  uint8_t item_size_;
  uint8_t swap_size_ = 1;   // Bytes that are reversed.
  uint8_t sign_first_ = 0;  // The first byte that has a sign to be flipped, ...
  uint8_t sign_step_ = 1;   // ... and how far it is to the next.
  Negation negation_ = Negation::kNone;
};

// Copies a box of elements that lie at regular distances in a source to regular distances in
// memory.
//
// A transposed matrix, a slice of its columns and a tensor that was expanded all are boxes: for
// each axis, how many steps, and how far one step goes in the source and in memory. To copy element
// by element would take a read for each. Instead the axes are sorted by their distance in the
// source, and the nearest ones form a *run*, a range of the source that is read at once, gaps
// included where a gap costs less than one more read. Runs go into a *tile*, a buffer that fits the
// processor's cache, and from there each element goes to its place.

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

// Returns the cost of Gather, in bytes that could be copied in the same time.
double GatherCost(const Box& box);

// Copies the elements of `box` to `memory`, which is where the first one goes. All of the box must
// lie within source and memory. Takes at most 64 KiB of memory. Throws as ByteSource::ReadAt does.
void Gather(const ByteSource& source, const Box& box, std::byte* memory);

}  // namespace ckptfs
