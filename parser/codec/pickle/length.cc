// To find the end of a pickle it is enough to know how long each opcode is: one byte and then, by
// its kind, a fixed number of bytes, a length and that many bytes, or one or two lines. What is
// long, the texts and bytes, is skipped where its length is known, so that it is not even read.

#include "parser/codec/pickle/length.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "parser/codec/pickle/machine.h"
#include "parser/error.h"
#include "parser/soon.h"

namespace ckptfs::pickle {
namespace {

// What follows an opcode.
struct Argument {
  uint8_t fixed = 0;      // Bytes, ...
  bool is_count = false;  // ... which are the number of bytes that follow them, ...
  bool is_signed = false;
  uint8_t lines = 0;  // ... or so many lines.
};

constexpr auto kArguments = [] {
  std::array<Argument, 256> arguments = {};
  const auto set = [&](std::string_view opcodes, Argument argument) {
    for (const char opcode : opcodes) arguments[static_cast<uint8_t>(opcode)] = argument;
  };
  set("\x80\x82qhK", {.fixed = 1});
  set("\x83M", {.fixed = 2});
  set("\x84rjJ", {.fixed = 4});
  set("\x95G", {.fixed = 8});
  set("\x8a\x8cUC", {.fixed = 1, .is_count = true});
  set("XB", {.fixed = 4, .is_count = true});
  set("\x8bT", {.fixed = 4, .is_count = true, .is_signed = true});
  set("\x8d\x8e\x96", {.fixed = 8, .is_count = true});
  set("pgILFSVP", {.lines = 1});
  set("ci", {.lines = 2});
  return arguments;
}();

// Reads forward through an extent. Most pickles are short, so it begins with little.
class Window {
 public:
  Window(const Extent& data, Budget& budget)
      : data_(data), budget_(budget), onward_(*data.source, data.offset) {}

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
    // An opcode for each byte, at worst.
    budget_.Work(std::min<uint64_t>(capacity_, data_.length - begin_) / 2);
    bytes_.resize(std::min<uint64_t>(capacity_, data_.length - begin_));
    onward_.Reach(data_.offset + begin_ + bytes_.size() - 1);
    data_.source->ReadAt(data_.offset + begin_, bytes_);
  }

  const Extent& data_;
  Budget& budget_;
  Onward onward_;
  std::vector<std::byte> bytes_;
  uint64_t begin_ = 0;  // Where they are in the extent.
  size_t next_ = 0;     // The next of them.
  size_t capacity_ = 0;
};

class Lexer {
 public:
  Lexer(const Extent& data, Budget& budget) : in_(data, budget) {}

  // Goes behind STOP.
  void Run() {
    constexpr uint64_t kMost = std::numeric_limits<uint32_t>::max();  // As Load has it.
    constexpr uint8_t kStop = '.';
    do {
      at_ = in_.position();
      if (at_ >= kMost)
        Fail(EFBIG, "pickle has more than {} bytes, which is the most we read", kMost);
      if (in_.remaining() == 0) Fail(EBADMSG, "pickle ends at byte {} without STOP", at_);
      opcode_ = std::to_integer<uint8_t>(in_.Peek(1)[0]);
      if (OpcodeOf(opcode_).run == nullptr) {
        Fail(EBADMSG, "opcode {:#04x} at byte {} is none that we know", opcode_, at_);
      }
      in_.Skip(1);
      SkipArgument(kArguments[opcode_]);
    } while (opcode_ != kStop);
  }

  uint64_t position() const { return in_.position(); }

 private:
  void Check(uint64_t need) const {
    if (need <= in_.remaining()) return;
    Fail(EBADMSG, "{} at byte {}: argument needs {} bytes, but only {} are left",
         OpcodeOf(opcode_).name, at_, need, in_.remaining());
  }

  void SkipArgument(const Argument& argument) {
    for (int line = 0; line < argument.lines; ++line) SkipLine();
    if (argument.fixed == 0) return;
    Check(argument.fixed);
    uint64_t count = 0;
    if (argument.is_count) std::memcpy(&count, in_.Peek(argument.fixed).data(), argument.fixed);
    in_.Skip(argument.fixed);
    if (argument.is_signed && count > std::numeric_limits<int32_t>::max()) {
      Fail(EBADMSG, "{} at byte {}: length is negative", OpcodeOf(opcode_).name, at_);
    }
    Check(count);
    in_.Skip(count);
  }

  void SkipLine() {
    while (in_.remaining() > 0) {
      const auto bytes = in_.Peek(1);
      const auto end = std::ranges::find(bytes, std::byte{'\n'});
      const auto length = static_cast<uint64_t>(end - bytes.begin());
      in_.Skip(end == bytes.end() ? length : length + 1);
      if (end != bytes.end()) return;
    }
    Fail(EBADMSG, "{} at byte {}: line does not end", OpcodeOf(opcode_).name, at_);
  }

  Window in_;
  uint64_t at_ = 0;     // Where the current opcode is.
  uint8_t opcode_ = 0;  // The current one.
};

}  // namespace

uint64_t LengthOf(const Extent& data, Budget& budget) {
  Lexer lexer(data, budget);
  lexer.Run();
  return lexer.position();
}

}  // namespace ckptfs::pickle
