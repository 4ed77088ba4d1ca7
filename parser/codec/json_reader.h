// Text in JSON that nobody has checked, read in one pass.
//
// The headers and indexes of checkpoints are JSON of a hundred megabytes at most. As a tree of
// values they would take several times that, so they are told to a visitor piece by piece. The
// grammar is that of RFC 8259 to the letter: no byte order mark, no comments, UTF-8 throughout, and
// no key twice in one object, for programs differ in which of the two they take. What Python writes
// is nearly that, and has a dialect of its own here. nlohmann_json, which read the strict one
// before, knows neither NaN nor halves of surrogate pairs nor numbers of any size; it is what the
// tests compare this with.

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

  // The same, but keys may occur twice. The visitor decides what that means.
  kRepeatedKeys,

  // What Python's json.dumps writes and json.loads reads: also the numbers NaN, Infinity and
  // -Infinity, numbers of any size, lone surrogates (escaped or in three bytes), and keys that
  // occur twice.
  kPython,
};

// Is told what is in a text, in its order, and ignores what it does not override. What it throws
// ends the reading.
class Visitor {
 public:
  virtual ~Visitor() = default;

  // An object or a list begins or ends.
  virtual void Begin(bool /*is_object*/) {}
  virtual void End(bool /*is_object*/) {}

  // The key of the member of an object whose value comes next. UTF-8; may be taken away.
  virtual void Key(std::string& /*key*/) {}

  // A value: text in UTF-8 (a lone surrogate is the three bytes that UTF-8 would give it), which
  // may be taken away; a number that is written as digits alone and fits; or whatever else there is
  // (null, true, a negative number, one with a fraction), as it is written.
  virtual void Text(std::string& /*text*/) {}
  virtual void Whole(uint64_t /*number*/) {}
  virtual void Other(std::string_view /*json*/) {}
};

// Objects and lists in one another. Python gives up before its own depth.
constexpr size_t kMaxDepth = 64;
constexpr size_t kMaxPythonDepth = 1000;

// Reads the one value that the `length` bytes of `source` from `offset` are, which must lie within
// it. What that takes is charged to `budget` while it lasts. Throws Error: EBADMSG where it is no
// JSON, with the byte of the text at which; EFBIG if it is nested deeper than the dialect may.
void Read(const ByteSource& source, uint64_t offset, uint64_t length, Budget& budget,
          Visitor& visitor, Dialect dialect = Dialect::kStrict);

// The same, but any number of values one after another, with blanks between them: JSON lines. The
// visitor cannot tell one from the next but by their depth.
void ReadLines(const ByteSource& source, uint64_t offset, uint64_t length, Budget& budget,
               Visitor& visitor, Dialect dialect = Dialect::kStrict);

}  // namespace ckptfs::json
