// A pickle can be split into opcodes without running it: an opcode is one byte, followed by a fixed
// number of bytes, by a length and that many bytes, or by one or two lines. Long texts and bytes of
// known length are skipped without reading them.

#include "parser/codec/pickle/lexer.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/codec/pickle/machine.h"
#include "parser/io/byte_source.h"
#include "parser/io/prefetch.h"

namespace ckptfs::pickle {
namespace {

constexpr size_t kLongestName = 64;  // Bytes, of names that callers search for.

// Reads forward through an extent, and counts the bytes as work, for which the budget grows with
// the stored bytes; both must outlive this. Most pickles are short, so the first read is small.
class Window {
 public:
  Window(const Extent& data, Budget& budget)
      : data_(data),
        budget_(budget),
        stored_(StoredSize(data)),
        onward_(*data.source, {.offset = data.offset, .length = data.length}) {}

  uint64_t position() const { return begin_ + next_; }
  uint64_t remaining() const { return data_.length - position(); }

  // Returns the next bytes, at least `least`, which must exist.
  std::span<const std::byte> Peek(size_t least) {
    if (bytes_.size() - next_ < least) Fill();
    return std::span(bytes_).subspan(next_);
  }

  // Skips the next `count` bytes, which must exist.
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

// Iterates over the opcodes of a pickle without running it. All functions throw Error with the
// offset: EBADMSG for an invalid pickle, EFBIG for one that is longer than the machine runs.
class Lexer {
 public:
  // `data` and `budget` must outlive this.
  Lexer(const Extent& data, Budget& budget) : in_(data, budget) {}

  // Skips the next opcode and its argument, and returns the opcode.
  uint8_t Next();

  // Skips `count` bytes that are not opcodes.
  void SkipRaw(uint64_t count);

  // The name that the last opcode pushed, if it may be that of a class: a short text, or the
  // argument of GLOBAL. Else empty.
  std::string_view name() const { return name_; }

  uint64_t position() const { return in_.position(); }

 private:
  struct Argument;

  void Check(uint64_t need) const;
  void SkipArgument(const Argument& argument);
  void SkipLine();

  Window in_;
  uint64_t raw_ = 0;    // Bytes that were not opcodes.
  uint64_t at_ = 0;     // The position of the current opcode.
  uint8_t opcode_ = 0;  // The current one.
  std::string name_;
};

constexpr uint8_t kStopOpcode = '.';
constexpr uint8_t kBuildOpcode = 'b';

// The argument of an opcode.
struct Lexer::Argument {
  uint8_t fixed = 0;      // Bytes, ...
  bool is_count = false;  // ... which are the number of bytes that follow them, ...
  bool is_signed = false;
  uint8_t lines = 0;  // ... or so many lines.
};

uint8_t Lexer::Next() {
  static constexpr auto kArguments = [] {
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
  constexpr uint64_t kMost = std::numeric_limits<uint32_t>::max();  // As for Load.
  at_ = in_.position();
  if (at_ - raw_ >= kMost) Fail(EFBIG, "pickle has more than {} bytes", kMost);
  if (in_.remaining() == 0)
    Fail(EBADMSG, "unexpected end of pickle at byte {}: STOP is missing", at_);
  opcode_ = std::to_integer<uint8_t>(in_.Peek(1)[0]);
  if (OpcodeOf(opcode_).run == nullptr) {
    Fail(EBADMSG, "unknown opcode {:#04x} at byte {}", opcode_, at_);
  }
  in_.Skip(1);
  name_.clear();
  SkipArgument(kArguments[opcode_]);
  return opcode_;
}

void Lexer::SkipRaw(uint64_t count) {
  if (count > in_.remaining()) {
    Fail(EBADMSG, "the array behind byte {} needs {} bytes, but only {} are left", in_.position(),
         count, in_.remaining());
  }
  in_.Skip(count);
  raw_ += count;
}

void Lexer::Check(uint64_t need) const {
  if (need <= in_.remaining()) return;
  Fail(EBADMSG, "{} at byte {}: argument needs {} bytes, but only {} are left",
       OpcodeOf(opcode_).name, at_, need, in_.remaining());
}

void Lexer::SkipArgument(const Argument& argument) {
  for (int line = 0; line < argument.lines; ++line) SkipLine();
  if (argument.fixed == 0) return;
  Check(argument.fixed);
  uint64_t count = 0;
  if (argument.is_count) std::memcpy(&count, in_.Peek(argument.fixed).data(), argument.fixed);
  in_.Skip(argument.fixed);
  if (argument.is_signed && count > std::numeric_limits<int32_t>::max()) {
    Fail(EBADMSG, "{} at byte {}: negative length", OpcodeOf(opcode_).name, at_);
  }
  Check(count);
  if (argument.is_count && count <= kLongestName) {
    const auto text = in_.Peek(static_cast<size_t>(count));
    name_.assign(reinterpret_cast<const char*>(text.data()), static_cast<size_t>(count));
  }
  in_.Skip(count);
}

// The beginning of the last line is the name.
void Lexer::SkipLine() {
  name_.clear();
  while (in_.remaining() > 0) {
    const auto bytes = in_.Peek(1);
    const auto end = std::ranges::find(bytes, std::byte{'\n'});
    const auto length = static_cast<size_t>(end - bytes.begin());
    if (name_.size() <= kLongestName) {
      name_.append(reinterpret_cast<const char*>(bytes.data()), std::min(length, kLongestName + 1));
    }
    in_.Skip(end == bytes.end() ? length : length + 1);
    if (end != bytes.end()) return;
  }
  Fail(EBADMSG, "{} at byte {}: unterminated line", OpcodeOf(opcode_).name, at_);
}

}  // namespace

uint64_t LengthOf(const Extent& data, Budget& budget) {
  Lexer lexer(data, budget);
  while (lexer.Next() != kStopOpcode) {
  }
  return lexer.position();
}

std::optional<uint64_t> LengthUnless(const Extent& data, std::string_view name, Budget& budget) {
  Lexer lexer(data, budget);
  while (lexer.Next() != kStopOpcode) {
    if (lexer.name() == name) return std::nullopt;
  }
  return lexer.position();
}

Graph LoadWithGaps(const Extent& data, Budget& budget, const FindGap& find, uint64_t& length) {
  const Resolve none;
  Machine machine({}, budget, none);
  Lexer lexer(data, budget);
  while (true) {
    const uint64_t begin = lexer.position();
    uint8_t opcode = 0;
    while (opcode != kStopOpcode && opcode != kBuildOpcode) opcode = lexer.Next();
    machine.RunPart({data.source, data.offset + begin, lexer.position() - begin}, begin);
    length = lexer.position();
    if (opcode == kStopOpcode) return std::move(machine).TakeGraph();
    const Gap gap = find(machine.top(), lexer.position());
    if (gap.replacement) machine.ReplaceTop(*gap.replacement);
    lexer.SkipRaw(gap.length);
  }
}

namespace {

bool IsName(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.';
  });
}

// Returns the number of importing opcodes in the pickle at the beginning of `data`; 0 if it is not
// a complete pickle, or a name is invalid.
size_t CountImports(const Extent& data, Budget& budget) try {
  Lexer lexer(data, budget);
  size_t count = 0;
  for (uint8_t opcode = 0; opcode != kStopOpcode;) {
    opcode = lexer.Next();
    const bool has_name = opcode == 'c' || opcode == 'i';
    if (has_name && !IsName(lexer.name())) return 0;
    count += has_name || opcode == 0x93 ? 1 : 0;
  }
  return count;
} catch (const Error&) {
  return 0;
}

}  // namespace

PartialRun RunPartly(const Extent& data, Budget& budget) {
  constexpr uint64_t kPart = uint64_t{64} << 10U;  // Bytes, unless one opcode has more.
  const Resolve none;
  Machine machine({}, budget, none);
  machine.KeepCalls();
  Lexer lexer(data, budget);
  std::optional<Error> error;
  uint64_t end = 0;
  for (uint8_t opcode = 0; !error && opcode != kStopOpcode;) {
    const uint64_t begin = end;
    try {
      while (opcode != kStopOpcode && end - begin < kPart) {
        opcode = lexer.Next();
        end = lexer.position();
      }
    } catch (const Error& e) {
      error = e;
    }
    if (begin == end) break;
    try {
      machine.RunPart({data.source, data.offset + begin, end - begin}, begin);
    } catch (const Error& e) {
      error = e;  // It comes before that of the lexer.
    }
  }
  PartialRun run{.graph = std::move(machine).TakeGraph(), .length = end, .error = std::move(error)};
  run.has_more = run.error && CountImports(data, budget) > run.graph.globals().size();
  return run;
}

bool IsNextPickle(const Extent& data, std::byte first) {
  std::byte head[2] = {};
  if (data.length < sizeof head) return false;
  data.source->ReadAt(data.offset, head);
  constexpr auto kProto = std::byte{0x80};
  if (first == kProto) {
    return head[0] == kProto && head[1] >= std::byte{2} && head[1] <= std::byte{5};
  }
  constexpr std::string_view kFirst = "(}])c";
  return kFirst.find(static_cast<char>(head[0])) != std::string_view::npos;
}

}  // namespace ckptfs::pickle
