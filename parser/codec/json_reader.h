// A streaming JSON parser for untrusted input.
//
// The headers and indexes of checkpoints are JSON of up to a hundred megabytes. A tree of values
// would take several times that, so they are passed to a visitor. The grammar is exactly RFC 8259:
// no byte order mark, no comments, valid UTF-8, and no duplicate keys, because programs differ in
// which one they use. Python writes a slightly different dialect, which is supported, too:
// nlohmann_json supports neither NaN nor lone surrogates nor integers of any size. The tests
// compare the strict dialect with it.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "parser/base/budget.h"
#include "parser/io/byte_source.h"

namespace ckptfs::json {

enum class Dialect : uint8_t {
  kStrict,  // RFC 8259.

  // The same, except that duplicate keys are passed to the visitor.
  kRepeatedKeys,

  // Python's json module: additionally NaN, Infinity, -Infinity, numbers of any size, lone
  // surrogates (escaped or in three bytes) and duplicate keys.
  kPython,
};

// Receives the contents of a JSON text in order. An exception of a method ends the parsing.
class Visitor {
 public:
  virtual ~Visitor() = default;

  // An object or a list begins or ends.
  virtual void Begin(bool /*is_object*/) {}
  virtual void End(bool /*is_object*/) {}

  // The key of a member, before its value. UTF-8. The visitor may move it.
  virtual void Key(std::string& /*key*/) {}

  // A value: a text in UTF-8 (a lone surrogate is encoded in three bytes), which the visitor may
  // move; a number of digits only that fits; or any other scalar (null, true, a negative number, a
  // number with a fraction) as written.
  virtual void Text(std::string& /*text*/) {}
  virtual void Whole(uint64_t /*number*/) {}
  virtual void Other(std::string_view /*json*/) {}
};

// Maximum nesting of objects and lists. Python fails at a smaller depth than kMaxPythonDepth.
constexpr size_t kMaxDepth = 64;
constexpr size_t kMaxPythonDepth = 1000;

// Parses `length` bytes of `source` at `offset`, which must lie within it, as one value. Temporary
// memory is charged to `budget`. Throws Error: EBADMSG for invalid JSON, with the position in the
// text; EFBIG if it exceeds the maximum nesting.
void Read(const ByteSource& source, uint64_t offset, uint64_t length, Budget& budget,
          Visitor& visitor, Dialect dialect = Dialect::kStrict);

// Parses any number of values separated by blanks: JSON lines. The visitor can separate values only
// by their depth.
void ReadLines(const ByteSource& source, uint64_t offset, uint64_t length, Budget& budget,
               Visitor& visitor, Dialect dialect = Dialect::kStrict);

}  // namespace ckptfs::json
