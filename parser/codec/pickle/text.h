// Values as text. The opcodes of protocol 0 have lines as arguments, each a literal as in Python 2:
// INT 42, FLOAT 0.5, STRING 'a\n', UNICODE a\u000a. All functions throw Error(EBADMSG) that quotes
// invalid text.

#pragma once

#include <cstdint>
#include <memory_resource>
#include <optional>
#include <string>
#include <string_view>

namespace ckptfs::pickle {

// The argument of INT and, without its final L, of LONG: decimal digits, maybe after a minus. No
// leading zeros, which Python's two unpicklers read differently. Empty if beyond 64 bits.
std::optional<int64_t> ParseInteger(std::string_view line);

// The argument of FLOAT.
double ParseFloat(std::string_view line);

// The argument of GET and PUT.
uint64_t ParseMemoIndex(std::string_view line);

// The argument of STRING, quoted and with escapes. Returns its bytes: a part of `line` or, where
// there are escapes, `scratch`.
std::string_view ParseString(std::string_view line, std::pmr::string& scratch);

// The argument of UNICODE: Latin-1 with escapes \uXXXX and \UXXXXXXXX. Returns it in UTF-8, as
// defined by IsText: `line` itself or, if that differs, `scratch`.
std::string_view ParseUnicode(std::string_view line, std::pmr::string& scratch);

// Whether `bytes` are UTF-8 as in pickles: valid, except that surrogates may occur, as in a Python
// str.
bool IsText(std::string_view bytes);

struct GlobalNames {
  std::string_view module;
  std::string_view name;
};

// Returns the name in Python 3 of the global `names` of Python 2: usually the same.
GlobalNames Python3Names(GlobalNames names);

}  // namespace ckptfs::pickle
