// The element types of NumPy's arrays.
//
// NumPy writes a type as byte order, kind and size: "<f4", ">U3" (texts of 3 characters), "<M8[ns]"
// (times). A structure is a list of fields: [('a', '<f4'), ('b', '|u1', (2,))].

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parser/base/dtype.h"

namespace ckptfs::npy {

// Parses an untrusted Python literal, as in the header of an array: texts, whole numbers, True and
// False, in tuples, lists and a dict. Each function parses the next item, after white space, or
// throws Error(EBADMSG) with the byte.
//
// Accepts only what NumPy writes, which is less than Python accepts: no comments, no sums, no
// adjacent texts, no hexadecimal numbers. Nothing is evaluated.
class Literal {
 public:
  struct Dialect {
    bool is_utf8 = false;        // Else Latin-1.
    bool has_long_ints = false;  // Numbers may end in L, as Python 2 wrote them.
  };

  // `text` must outlive this. Messages count bytes from `base` bytes before it.
  Literal(std::string_view text, uint64_t base, const Dialect& dialect)
      : text_(text), base_(base), dialect_(dialect) {}

  // Returns the next character without consuming it; NUL at the end.
  char Peek();

  // Consumes `c` if it is next.
  bool TakeIf(char c);

  // Takes `c`.
  void Take(char c);

  // Consumes an opening bracket, or the closing one. Throws Error(EBADMSG) if too many are open.
  void Open(char bracket);
  void Close(char bracket);

  // Consumes a comma or the closing bracket; returns whether an item follows: `[1, 2]`, `[1, ]`.
  bool HasMore(char bracket);

  // Parses a text and returns it in UTF-8.
  std::string Text();

  // Parses a number below 2^63.
  uint64_t Size();

  // Parses a tuple of such numbers: `()`, `(1,)`, `(1, 2)`; `(1)` is not a tuple. Throws
  // Error(EBADMSG) if they are more than kMaxDimensions.
  std::vector<uint64_t> Sizes();

  bool Bool();

  // Checks that only white space is left.
  void End();

  // Throws Error(EBADMSG): `what` was expected at the current position.
  [[noreturn]] void FailAt(std::string_view what);

 private:
  static constexpr size_t kMaxDepth = 64;  // Nested brackets.

  void SkipSpace();
  char32_t Escape();

  std::string_view text_;
  uint64_t base_;
  Dialect dialect_;
  size_t position_ = 0;
  size_t depth_ = 0;
};

struct Type {
  Dtype dtype = Dtype::kOpaque;  // kOpaque if PyTorch has no such type.
  uint64_t item_size = 0;        // In bytes. May be 0.
  uint64_t swap_size = 1;        // Bytes that are to be reversed if it is big-endian: see SwapSize.
  bool is_big_endian = false;    // Whether the elements must be swapped.
  bool has_objects = false;      // The elements are pickled Python objects: there are no bytes.
  std::string name;              // NumPy's dtype.str: "<f4", "|S5"; "|V12" if structured.
};

// Returns the type of byte order `order` ('<', '>', '|' or '=') with the code `code`: "f4", "U3",
// "M8[ns]". Nothing if neither NumPy nor ml_dtypes writes this code.
std::optional<Type> TypeNamed(char order, std::string_view code);

// The name of the type when its elements are little-endian: "<M8[ns]" for ">M8[ns]". Types whose
// elements cannot be swapped keep their name.
std::string LittleEndianName(const Type& type);

// Parses a type in the header of a file, and appends it to `json`, with lists for tuples. Throws
// Error: EBADMSG if it is invalid, EOVERFLOW if its elements have 2^63 bytes or more, or too many
// fields.
Type TakeType(Literal& literal, std::string& json);

}  // namespace ckptfs::npy
