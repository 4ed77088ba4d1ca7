// The JSON is read here and not by a parser of JSON in general: those take a lone surrogate for an
// error, as the standard has it, but Python writes and reads them.

#include "parser/format/tensorizer/name.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <system_error>

#include "parser/error.h"
#include "parser/utf8.h"

namespace ckptfs::tensorizer {
namespace {

constexpr char kArrayMark = '\x1E';

bool IsHighSurrogate(char32_t unit) { return unit >= 0xD800 && unit < 0xDC00; }
bool IsLowSurrogate(char32_t unit) { return unit >= 0xDC00 && unit < 0xE000; }

void AppendCharacter(std::string& out, char32_t code) {
  const auto append = [&out](char32_t byte) { out += static_cast<char>(byte); };
  const auto follow = [&append](char32_t bits) { append(0x80U | (bits & 0x3FU)); };
  if (code < 0x80) {
    append(code);
  } else if (code < 0x800) {
    append(0xC0U | (code >> 6U));
    follow(code);
  } else if (code < 0x10000) {
    append(0xE0U | (code >> 12U));
    follow(code >> 6U);
    follow(code);
  } else {
    append(0xF0U | (code >> 18U));
    follow(code >> 12U);
    follow(code >> 6U);
    follow(code);
  }
}

// Returns how many bytes the character at the beginning of `text` takes, which may be a lone
// surrogate; 0 if there is none.
size_t LengthOfCharacter(std::string_view text) {
  const utf8::Character next = utf8::Decode(text);
  if (next.is_valid) return next.length;
  const bool is_surrogate = text.size() >= 3 && text[0] == '\xED' &&
                            (static_cast<unsigned char>(text[1]) & 0xE0U) == 0xA0 &&
                            (static_cast<unsigned char>(text[2]) & 0xC0U) == 0x80;
  return is_surrogate ? 3 : 0;
}

// Reads the array of a name from its beginning to its end.
class ArrayReader {
 public:
  explicit ArrayReader(std::string_view stored) : stored_(stored), rest_(stored.substr(1)) {}

  std::vector<Key> Read() {
    std::vector<Key> keys;
    Expect('[');
    do {
      if (keys.size() == kMaxDepth) {
        Fail(EBADMSG, "the name {} has more than {} keys in it", Quoted(stored_), kMaxDepth);
      }
      SkipBlanks();
      keys.push_back(TakeIf('"') ? Key{TextKey()} : Key{NumberKey(), Key::Kind::kNumber});
      SkipBlanks();
    } while (TakeIf(','));
    Expect(']');
    if (!rest_.empty()) Refuse();
    return keys;
  }

 private:
  [[noreturn]] void Refuse() const {
    Fail(EBADMSG, "the name {} is no list of texts and whole numbers in JSON at its byte {}",
         Quoted(stored_), stored_.size() - rest_.size());
  }

  bool TakeIf(char c) {
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  void Expect(char c) {
    if (!TakeIf(c)) Refuse();
  }

  // tensorizer takes no ends of lines, not even as white space.
  void SkipBlanks() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t"), rest_.size())); }

  std::string NumberKey() {
    const size_t length = std::min(rest_.find_first_not_of("0123456789"), rest_.size());
    const std::string_view digits = rest_.substr(0, length);
    int64_t number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + length, number);
    const bool has_zero = length > 1 && digits[0] == '0';
    if (error != std::errc() || has_zero) Refuse();
    rest_.remove_prefix(length);
    return std::string(digits);
  }

  std::string TextKey() {
    std::string text;
    while (!TakeIf('"')) {
      if (rest_.empty() || static_cast<unsigned char>(rest_[0]) < 0x20) Refuse();
      if (TakeIf('\\')) {
        AppendCharacter(text, Escape());
        continue;
      }
      const size_t length = LengthOfCharacter(rest_);
      if (length == 0) Refuse();
      text += rest_.substr(0, length);
      rest_.remove_prefix(length);
    }
    return text;
  }

  // The character that stands behind a backslash.
  char32_t Escape() {
    constexpr std::string_view kNames = "\"\\/bfnrt";
    constexpr std::string_view kCharacters = "\"\\/\b\f\n\r\t";
    if (TakeIf('u')) return EscapedUnits();
    const size_t index = rest_.empty() ? std::string_view::npos : kNames.find(rest_[0]);
    if (index == std::string_view::npos) Refuse();
    rest_.remove_prefix(1);
    return static_cast<unsigned char>(kCharacters[index]);
  }

  // A character above U+FFFF is two escapes.
  char32_t EscapedUnits() {
    const char32_t unit = Unit();
    if (!IsHighSurrogate(unit) || !rest_.starts_with("\\u")) return unit;
    const std::string_view behind = rest_;
    rest_.remove_prefix(2);
    if (const char32_t low = Unit(); IsLowSurrogate(low)) {
      return 0x10000U + ((unit - 0xD800U) << 10U) + (low - 0xDC00U);
    }
    rest_ = behind;
    return unit;
  }

  char32_t Unit() {
    constexpr size_t kDigits = 4;
    constexpr int kHex = 16;
    uint16_t unit = 0;
    const std::string_view digits = rest_.substr(0, kDigits);
    const char* all = digits.data() + digits.size();
    const auto [end, error] = std::from_chars(digits.data(), all, unit, kHex);
    if (digits.size() < kDigits || error != std::errc() || end != all) Refuse();
    rest_.remove_prefix(kDigits);
    return unit;
  }

  std::string_view stored_;
  std::string_view rest_;  // What was not read yet.
};

}  // namespace

std::vector<Key> ReadName(std::string_view stored) {
  if (stored.starts_with(kArrayMark)) return ArrayReader(stored).Read();
  if (!utf8::IsValid(stored)) Fail(EBADMSG, "the name {} is no UTF-8", Quoted(stored));
  return {Key{std::string(stored)}};
}

std::string ShownName(std::string_view stored) {
  std::string shown;
  for (const Key& key : ReadName(stored)) {
    if (!shown.empty()) shown += '.';
    shown += key.text;
  }
  return shown;
}

}  // namespace ckptfs::tensorizer
