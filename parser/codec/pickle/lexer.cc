#include "parser/codec/pickle/lexer.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>

#include "parser/base/error.h"
#include "parser/codec/pickle/machine.h"

namespace ckptfs::pickle {
namespace {

constexpr size_t kMostOfName = 64;  // Bytes, of those that anybody asks for.

}  // namespace

// What follows an opcode.
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
  constexpr uint64_t kMost = std::numeric_limits<uint32_t>::max();  // As Load has it.
  at_ = in_.position();
  if (at_ - raw_ >= kMost)
    Fail(EFBIG, "pickle has more than {} bytes, which is the most we read", kMost);
  if (in_.remaining() == 0) Fail(EBADMSG, "pickle ends at byte {} without STOP", at_);
  opcode_ = std::to_integer<uint8_t>(in_.Peek(1)[0]);
  if (OpcodeOf(opcode_).run == nullptr) {
    Fail(EBADMSG, "opcode {:#04x} at byte {} is none that we know", opcode_, at_);
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
    Fail(EBADMSG, "{} at byte {}: length is negative", OpcodeOf(opcode_).name, at_);
  }
  Check(count);
  if (argument.is_count && count <= kMostOfName) {
    const auto text = in_.Peek(static_cast<size_t>(count));
    name_.assign(reinterpret_cast<const char*>(text.data()), static_cast<size_t>(count));
  }
  in_.Skip(count);
}

// Of the last line, the beginning is the name.
void Lexer::SkipLine() {
  name_.clear();
  while (in_.remaining() > 0) {
    const auto bytes = in_.Peek(1);
    const auto end = std::ranges::find(bytes, std::byte{'\n'});
    const auto length = static_cast<size_t>(end - bytes.begin());
    if (name_.size() <= kMostOfName) {
      name_.append(reinterpret_cast<const char*>(bytes.data()), std::min(length, kMostOfName + 1));
    }
    in_.Skip(end == bytes.end() ? length : length + 1);
    if (end != bytes.end()) return;
  }
  Fail(EBADMSG, "{} at byte {}: line does not end", OpcodeOf(opcode_).name, at_);
}

}  // namespace ckptfs::pickle
