// To go through a pickle it is enough to know how long each opcode is: one byte and then, by its
// kind, a fixed number of bytes, a length and that many bytes, or one or two lines. What is long,
// the texts and bytes, is skipped where its length is known, so that it is not even read.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/budget.h"
#include "parser/io/byte_source.h"
#include "parser/io/prefetch.h"

namespace ckptfs::pickle {

// Reads forward through an extent, and counts what it reads as work, for which the budget grows with
// the bytes that are stored; both must outlive this. Most pickles are short, so it begins with
// little.
class Window {
 public:
  Window(const Extent& data, Budget& budget)
      : data_(data),
        budget_(budget),
        stored_(StoredSize(data)),
        onward_(*data.source, data.offset) {}

  uint64_t position() const { return begin_ + next_; }
  uint64_t remaining() const { return data_.length - position(); }

  // The next bytes, at least `least` of them, which must be there.
  std::span<const std::byte> Peek(size_t least) {
    if (bytes_.size() - next_ < least) Fill();
    return std::span(bytes_).subspan(next_);
  }

  // Goes on behind the next `count` bytes, which must be there.
  void Skip(uint64_t count) {
    if (count <= bytes_.size() - next_) {
      next_ += count;
      return;
    }
    begin_ = position() + count;
    bytes_.clear();
    next_ = 0;
  }

 private:
  void Fill() {
    constexpr size_t kLeast = 512;
    constexpr size_t kMost = size_t{256} << 10U;
    begin_ = position();
    next_ = 0;
    capacity_ = std::clamp(2 * capacity_, kLeast, kMost);
    const uint64_t size = std::min<uint64_t>(capacity_, data_.length - begin_);
    GrowTo(std::min(begin_ + size, stored_));
    budget_.Work(size / 2);  // An opcode for each byte, at worst.
    bytes_.resize(static_cast<size_t>(size));
    onward_.Reach(data_.offset + begin_ + bytes_.size() - 1);
    data_.source->ReadAt(data_.offset + begin_, bytes_);
  }

  void GrowTo(uint64_t end) {
    if (end <= grown_) return;
    budget_.Grow(end - grown_);
    grown_ = end;
  }

  const Extent& data_;
  Budget& budget_;
  const uint64_t stored_;  // Bytes of the extent; fewer than it has if it is compressed.
  uint64_t grown_ = 0;     // So many of them the budget has grown by.
  SequentialPrefetcher onward_;
  std::vector<std::byte> bytes_;
  uint64_t begin_ = 0;  // Where they are in the extent.
  size_t next_ = 0;     // The next of them.
  size_t capacity_ = 0;
};

// Goes through a pickle, opcode by opcode, without running it. All functions throw Error that says
// the byte: EBADMSG for what is no pickle, EFBIG for one that is longer than any we run.
class Lexer {
 public:
  // `data` and `budget` must outlive this.
  Lexer(const Extent& data, Budget& budget) : in_(data, budget) {}

  // Goes behind the next opcode and what belongs to it, and returns the opcode.
  uint8_t Next();

  // Goes behind `count` bytes that are no opcodes.
  void SkipRaw(uint64_t count);

  // The name that the last opcode pushed, if it may be that of a class: a short text, or what
  // GLOBAL names. Else empty.
  std::string_view name() const { return name_; }

  uint64_t position() const { return in_.position(); }

 private:
  struct Argument;

  void Check(uint64_t need) const;
  void SkipArgument(const Argument& argument);
  void SkipLine();

  Window in_;
  uint64_t raw_ = 0;    // Bytes that were no opcodes.
  uint64_t at_ = 0;     // Where the current opcode is.
  uint8_t opcode_ = 0;  // The current one.
  std::string name_;
};

constexpr uint8_t kStopOpcode = '.';
constexpr uint8_t kBuildOpcode = 'b';

}  // namespace ckptfs::pickle
