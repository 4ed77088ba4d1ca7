// Python literals, as far as the header of an array is one: texts, whole numbers, True and False,
// in tuples, lists and a dict.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ckptfs::npy {

// A decompressor over a literal that nobody has checked. Whatever it is asked to take must come next,
// after white space, or it throws Error(EBADMSG), which says at which byte it is.
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

  // Takes a tuple of such numbers: `()`, `(1,)`, `(1, 2)`; `(1)` is none. Throws Error(EBADMSG)
  // if they are more than kMaxDimensions.
  std::vector<uint64_t> Sizes();

  bool Bool();

  // Nothing but white space may be left.
  void End();

  // Throws Error(EBADMSG): `what` was wanted where the decompressor is.
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

}  // namespace ckptfs::npy
