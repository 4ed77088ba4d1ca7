#include "parser/codec/npy/literal.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <iterator>
#include <system_error>
#include <utility>

#include "parser/base/dtype.h"
#include "parser/base/error.h"
#include "parser/base/utf8.h"

namespace ckptfs::npy {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// What stands for itself after a backslash, and for what.
struct Escaped {
  char letter;
  char32_t code;
};
constexpr Escaped kEscapes[] = {{'\\', '\\'}, {'\'', '\''}, {'"', '"'},
                                {'n', '\n'},  {'r', '\r'},  {'t', '\t'}};

// Those that a number follows, in so many hexadecimal digits.
struct Numbered {
  char letter;
  size_t digits;
};
constexpr Numbered kNumbered[] = {{'x', 2}, {'u', 4}, {'U', 8}};

}  // namespace

void Literal::FailAt(std::string_view what) {
  SkipSpace();
  if (position_ == text_.size()) {
    Fail(EBADMSG, "header ends at byte {}, where {} is wanted", base_ + position_, what);
  }
  constexpr size_t kShown = 16;  // Bytes.
  Fail(EBADMSG, "header at byte {}: {} is wanted, but there is {}", base_ + position_, what,
       Quoted(text_.substr(position_, kShown)));
}

void Literal::SkipSpace() {
  position_ = std::min(text_.find_first_not_of(" \t\n\r\f", position_), text_.size());
}

char Literal::Peek() {
  SkipSpace();
  return position_ < text_.size() ? text_[position_] : '\0';
}

bool Literal::TakeIf(char c) {
  if (position_ == text_.size() || Peek() != c) return false;
  ++position_;
  return true;
}

void Literal::Take(char c) {
  if (!TakeIf(c)) FailAt(std::string("a ") + c);
}

void Literal::Open(char bracket) {
  Take(bracket);
  if (++depth_ > kMaxDepth) {
    Fail(EBADMSG, "header at byte {}: more than {} brackets are open", base_ + position_,
         kMaxDepth);
  }
}

void Literal::Close(char bracket) {
  Take(bracket);
  --depth_;
}

bool Literal::HasMore(char bracket) {
  const bool has_comma = TakeIf(',');
  if (Peek() == bracket) {
    Close(bracket);
    return false;
  }
  if (!has_comma) FailAt(std::string("a comma or a ") + bracket);
  return true;
}

char32_t Literal::Escape() {
  const size_t begin = position_ - 1;  // The backslash.
  const auto fail = [&]() { position_ = begin, FailAt("a text of characters"); };
  const char letter = position_ < text_.size() ? text_[position_++] : '\0';
  const auto* escaped = std::ranges::find(kEscapes, letter, &Escaped::letter);
  if (escaped != std::end(kEscapes)) return escaped->code;
  const auto* numbered = std::ranges::find(kNumbered, letter, &Numbered::letter);
  if (numbered == std::end(kNumbered)) fail();
  const std::string_view digits = text_.substr(position_, numbered->digits);
  uint32_t code = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
  const bool is_number = digits.size() == numbered->digits && parsed.ec == std::errc() &&
                         parsed.ptr == digits.data() + digits.size();
  if (!is_number || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) fail();
  position_ += digits.size();
  return code;
}

std::string Literal::Text() {
  SkipSpace();
  const size_t begin = position_;
  const auto fail = [&](std::string_view what) { position_ = begin, FailAt(what); };
  if (!TakeIf('u')) TakeIf('U');
  const char quote = position_ < text_.size() ? text_[position_] : '\0';
  if (quote != '\'' && quote != '"') fail("a text");
  ++position_;
  std::string text;
  while (position_ < text_.size()) {
    const char c = text_[position_++];
    if (c == quote) return text;
    if (c == '\0' || c == '\n' || c == '\r') break;  // Python has these as escapes only.
    if (c == '\\') {
      text += utf8::Encode(Escape());
    } else if (dialect_.is_utf8) {
      text += c;
    } else {
      text += utf8::Encode(static_cast<unsigned char>(c));
    }
  }
  fail("a text that ends in a quote");
  return {};
}

uint64_t Literal::Size() {
  constexpr std::string_view kWanted = "a whole number below 2^63";
  SkipSpace();
  const char* begin = text_.data() + position_;
  const char* end = std::find_if_not(begin, text_.data() + text_.size(), IsDigit);
  int64_t number = 0;
  const auto parsed = std::from_chars(begin, end, number);
  // A zero in front made a number octal in Python 2 and is an error in Python 3.
  const bool is_octal = end - begin > 1 && *begin == '0';
  if (begin == end || parsed.ec != std::errc() || is_octal) FailAt(kWanted);
  position_ += static_cast<size_t>(end - begin);
  if (dialect_.has_long_ints && position_ < text_.size() && text_[position_] == 'L') ++position_;
  return static_cast<uint64_t>(number);
}

std::vector<uint64_t> Literal::Sizes() {
  std::vector<uint64_t> sizes;
  Open('(');
  if (Peek() == ')') {
    Close(')');
    return sizes;
  }
  do {
    if (sizes.size() == kMaxDimensions) {
      Fail(EBADMSG, "header at byte {}: there are more than {} dimensions", base_ + position_,
           kMaxDimensions);
    }
    sizes.push_back(Size());
    if (sizes.size() == 1 && Peek() != ',') FailAt("a comma");
  } while (HasMore(')'));
  return sizes;
}

bool Literal::Bool() {
  SkipSpace();
  for (const auto& [word, value] : {std::pair("True", true), std::pair("False", false)}) {
    if (!text_.substr(position_).starts_with(word)) continue;
    position_ += std::string_view(word).size();
    return value;
  }
  FailAt("True or False");
}

void Literal::End() {
  SkipSpace();
  if (position_ != text_.size()) FailAt("nothing more");
}

}  // namespace ckptfs::npy
