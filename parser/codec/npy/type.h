// The element types of NumPy's arrays.
//
// NumPy spells a type as byte order, kind and size: "<f4", ">U3" (texts of 3 characters), "<M8[ns]"
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

// Parses an unchecked Python literal, as far as the header of an array is one: texts, whole
// numbers, True and False, in tuples, lists and a dict. Each function takes the next item, after
// white space, or throws Error(EBADMSG) with the byte.
//
// Only what numpy writes is taken, which is less than Python would: no comments, no sums, no texts
// side by side, no hexadecimal numbers. Nothing in it is ever evaluated.
class Literal {
 public:
  struct Dialect {
    bool is_utf8 = false;        // Else Latin-1.
    bool has_long_ints = false;  // Numbers may end in L, as Python 2 wrote them.
  };

  // `text` must outlive this. Messages count bytes from `base` bytes before it.
  Literal(std::string_view text, uint64_t base, const Dialect& dialect)
      : text_(text), base_(base), dialect_(dialect) {}

  // The next character, which is not taken; NUL at the end.
  char Peek();

  // Takes `c` if it comes next.
  bool TakeIf(char c);

  // Takes `c`.
  void Take(char c);

  // Takes a bracket that opens, or the one that closes. Throws Error(EBADMSG) if more are open than
  // any array needs.
  void Open(char bracket);
  void Close(char bracket);

  // Takes a comma or the bracket that closes; returns whether an item follows: `[1, 2]`, `[1, ]`.
  bool HasMore(char bracket);

  // Takes a text and returns it in UTF-8.
  std::string Text();

  // Takes a number below 2^63.
  uint64_t Size();

  // Takes a tuple of such numbers: `()`, `(1,)`, `(1, 2)`; `(1)` is not a tuple. Throws
  // Error(EBADMSG) if they are more than kMaxDimensions.
  std::vector<uint64_t> Sizes();

  bool Bool();

  // Nothing but white space may be left.
  void End();

  // Throws Error(EBADMSG): `what` was expected at the current position.
  [[noreturn]] void FailAt(std::string_view what);

 private:
  static constexpr size_t kMaxDepth = 64;  // Brackets in one another.

  void SkipSpace();
  char32_t Escape();

  std::string_view text_;
  uint64_t base_;
  Dialect dialect_;
  size_t position_ = 0;
  size_t depth_ = 0;
};

struct Type {
  Dtype dtype = Dtype::kOpaque;  // kOpaque for all that PyTorch has no type for.
  uint64_t item_size = 0;        // In bytes. May be 0.
  uint64_t swap_size = 1;        // Bytes that are to be reversed if it is big-endian: see SwapSize.
  bool is_big_endian = false;    // As stored. False for what is shown as it is stored.
  bool has_objects = false;      // The elements are pickled Python objects: there are no bytes.
  std::string name;              // As numpy's dtype.str has it: "<f4", "|S5"; "|V12" if structured.
};

// Returns the type of byte order `order` ('<', '>', '|' or '=') with the code `code`: "f4", "U3",
// "M8[ns]". Nothing if neither NumPy nor ml_dtypes writes this code.
std::optional<Type> TypeNamed(char order, std::string_view code);

// The name of the type when its elements are little-endian: "<M8[ns]" for ">M8[ns]". Types whose
// elements that cannot be swapped keep theirs.
std::string LittleEndianName(const Type& type);

// Takes a type as the header of a file has it, and appends it to `json`, with lists for tuples.
// Throws Error: EBADMSG if it is none, EOVERFLOW if its elements have 2^63 bytes or more, or
// more fields than we read.
Type TakeType(Literal& literal, std::string& json);

}  // namespace ckptfs::npy
