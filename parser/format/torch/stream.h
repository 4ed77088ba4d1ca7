// What PyTorch wrote before it wrote archives: pickles, numbers and bytes, one after another.

#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "parser/base/budget.h"
#include "parser/checkpoint.h"
#include "parser/codec/pickle.h"
#include "parser/format/torch/reading.h"
#include "parser/io/byte_source.h"

namespace ckptfs::torch {

// A pickle, and where it lies.
struct Piece {
  Extent place;
  std::vector<std::byte> bytes;

  // Runs it, and adds what it names to the globals of the reading. The piece must outlive the
  // result. Throws Error, whose message begins with `what`.
  pickle::Graph Run(std::string_view what, Reading& reading) const;
};

// A decompressor over such data. Messages call what is read `what`, and count bytes from the beginning of
// the data. All methods throw Error(EBADMSG) if that is not there.
class Stream {
 public:
  // `budget` must outlive the stream.
  Stream(const Extent& data, Budget& budget) : begin_(data.offset), rest_(data), budget_(budget) {}

  // Reads a pickle, whose bytes are charged to the budget.
  Piece TakePickle(std::string_view what);

  // Reads an integer, least significant byte first.
  template <std::integral T>
  T Take(std::string_view what) {
    T number;
    Read(std::as_writable_bytes(std::span(&number, 1)), what);
    return number;
  }

  // Goes behind `length` bytes, which are not read, and returns their place.
  Extent Skip(uint64_t length, std::string_view what);

  // What follows all that was taken, ...
  const Extent& rest() const { return rest_; }

  // ... and where that begins.
  uint64_t position() const { return rest_.offset - begin_; }

 private:
  void Read(std::span<std::byte> buffer, std::string_view what);

  const uint64_t begin_;
  Extent rest_;
  Budget& budget_;
};

// Adds to the annotations what `system`, a dict that these formats have, tells of the machine that wrote
// the file: "protocol_version" and "little_endian". What is not as it should be is left out.
void TellSystem(const pickle::Value& system, Checkpoint& checkpoint);

}  // namespace ckptfs::torch
