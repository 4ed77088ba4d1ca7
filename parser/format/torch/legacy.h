// The formats of torch.save that precede archives: streams of pickles, numbers and bytes.

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
#include "parser/format/torch/reader.h"
#include "parser/io/byte_source.h"

namespace ckptfs::torch {

// A pickle and its location.
struct Piece {
  Extent place;
  std::vector<std::byte> bytes;

  // Runs the pickle, and adds its globals to those of the reading. The piece must outlive the
  // result. Throws Error, whose message begins with `what`.
  pickle::Graph Run(std::string_view what, Reading& reading) const;
};

// Reads pickles, numbers and bytes, one after another. `what` names the item in messages, which
// count bytes from the beginning of the data. All methods throw Error(EBADMSG) at the end of the
// data.
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

  // Skips `length` bytes without reading them, and returns their location.
  Extent Skip(uint64_t length, std::string_view what);

  // The rest of the data, ...
  const Extent& rest() const { return rest_; }

  // ... and its offset in the data.
  uint64_t position() const { return rest_.offset - begin_; }

 private:
  void Read(std::span<std::byte> buffer, std::string_view what);

  const uint64_t begin_;
  Extent rest_;
  Budget& budget_;
};

// Adds "protocol_version" and "little_endian" of `system`, the dict in which these formats describe
// the machine that wrote the file, to the annotations. Invalid items are skipped.
void RecordSystem(const pickle::Value& system, Checkpoint& checkpoint);

// Number of bytes that IsLegacy needs.
constexpr size_t kLegacyHead = 64;

// Returns whether `head`, the first kLegacyHead bytes of a file or all of a shorter one, begins a
// legacy stream.
bool IsLegacy(std::string_view head);

// Reads a legacy stream, without its format and globals, as ReadSaved does. Throws Error.
Checkpoint ReadLegacy(const Extent& data, Reading& reading);

}  // namespace ckptfs::torch
