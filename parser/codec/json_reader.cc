#include "parser/codec/json_reader.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <memory_resource>
#include <span>
#include <vector>

#include "parser/base/error.h"
#include "parser/base/hash.h"
#include "parser/base/text.h"
#include "parser/codec/json_input.h"

namespace ckptfs::json {
namespace {

// The keys of all open objects.
class Keys {
 public:
  explicit Keys(Budget& budget) : text_(&budget), keys_(&budget), begins_(&budget) {}

  void Begin() { begins_.push_back(keys_.size()); }

  void Add(std::string_view key) {
    keys_.push_back({HashOf(key), text_.size(), key.size()});
    text_ += key;
  }

  // Throws Error if the innermost object has a key twice.
  void End() {
    const auto keys = std::span(keys_).subspan(begins_.back());
    begins_.pop_back();
    if (keys.empty()) return;
    const size_t begin = keys.front().begin;
    std::ranges::sort(keys, [this](const Entry& a, const Entry& b) {
      return a.hash != b.hash ? a.hash < b.hash : TextOf(a) < TextOf(b);
    });
    const auto twice = std::ranges::adjacent_find(keys, [this](const Entry& a, const Entry& b) {
      return a.hash == b.hash && TextOf(a) == TextOf(b);
    });
    if (twice != keys.end()) Fail(EBADMSG, "{} occurs twice", Quoted(TextOf(*twice)));
    text_.resize(begin);
    keys_.resize(keys_.size() - keys.size());
  }

 private:
  struct Entry {
    uint64_t hash = 0;
    size_t begin = 0;  // In text_.
    size_t length = 0;
  };

  std::string_view TextOf(const Entry& key) const {
    return std::string_view(text_).substr(key.begin, key.length);
  }

  std::pmr::string text_;
  std::pmr::vector<Entry> keys_;
  std::pmr::vector<size_t> begins_;  // Of each open object, in keys_.
};

bool IsPlain(char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; }
bool IsHighSurrogate(char32_t unit) { return unit >= 0xD800 && unit < 0xDC00; }
bool IsLowSurrogate(char32_t unit) { return unit >= 0xDC00 && unit < 0xE000; }

// Returns whether `bytes` are the encoding of a surrogate, which Python accepts in JSON.
bool IsSurrogate(std::string_view bytes) {
  return bytes.size() == 3 && bytes[0] == '\xED' &&
         (static_cast<unsigned char>(bytes[1]) & 0xE0U) == 0xA0 &&
         (static_cast<unsigned char>(bytes[2]) & 0xC0U) == 0x80;
}

class Reader {
 public:
  Reader(const ByteSource& source, uint64_t offset, uint64_t length, Budget& budget,
         Visitor& visitor, Dialect dialect)
      : characters_(source, offset, length, budget),
        length_(length),
        is_python_(dialect == Dialect::kPython),
        has_unique_keys_(dialect == Dialect::kStrict),
        token_(budget),
        keys_(budget),
        visitor_(visitor) {
    const bool has_mark = !characters_.is_at_end() && characters_.current() == '\xEF';
    if (has_mark) Fail(EBADMSG, "invalid JSON at byte 0: byte order mark");
  }

  bool SkipBlanks() {
    while (!characters_.is_at_end() && IsBlank(characters_.current())) characters_.Advance();
    return !characters_.is_at_end();
  }

  // Parses a value without recursion.
  void ReadValue() {
    ReadBeginning();
    while (!is_object_.empty()) {
      SkipBlanks();
      token_.Clear();
      const bool is_object = is_object_.back();
      if (Current() == ',') {
        characters_.Advance();
        if (is_object) ReadKey();
        ReadBeginning();
      } else if (Current() == (is_object ? '}' : ']')) {
        End();
      } else {
        FailHere();
      }
    }
  }

  [[noreturn]] void FailHere() {
    if (characters_.is_at_end()) {
      Fail(EBADMSG, "invalid JSON at byte {}: unexpected end of text", length_);
    }
    const char c = characters_.current();
    if (c == '\0') Fail(EBADMSG, "invalid JSON at byte {}: NUL character", characters_.position());
    Fail(EBADMSG, "invalid JSON at byte {}, near {}", characters_.position(),
         Quoted(is_in_text_ ? '"' + token_.text() + c : token_.text() + c));
  }

  void ClearToken() { token_.Clear(); }

 private:
  char Current() {
    if (characters_.is_at_end()) FailHere();
    return characters_.current();
  }

  // Skips the next character if it is `c`; returns whether it was.
  bool Skip(char c) {
    if (characters_.is_at_end() || characters_.current() != c) return false;
    characters_.Advance();
    return true;
  }

  // Appends the next character to the token.
  void Keep() {
    token_.Append({characters_.block().data(), 1});
    characters_.Advance();
  }

  // Parses the begin of a value up to its first scalar or its end.
  void ReadBeginning() {
    for (;;) {
      SkipBlanks();
      token_.Clear();
      const char c = Current();
      if (c != '{' && c != '[') break;
      const bool is_object = c == '{';
      Begin(is_object);
      SkipBlanks();
      if (Current() == (is_object ? '}' : ']')) {
        End();
        return;
      }
      if (is_object) ReadKey();
    }
    ReadScalar();
  }

  void Begin(bool is_object) {
    const size_t most = is_python_ ? kMaxPythonDepth : kMaxDepth;
    if (is_object_.size() == most) Fail(EFBIG, "is nested more than {} deep", most);
    is_object_.push_back(is_object);
    characters_.Advance();
    if (is_object && has_unique_keys_) keys_.Begin();
    visitor_.Begin(is_object);
  }

  void End() {
    characters_.Advance();
    const bool is_object = is_object_.back();
    is_object_.pop_back();
    if (is_object && has_unique_keys_) keys_.End();
    visitor_.End(is_object);
  }

  void ReadKey() {
    SkipBlanks();
    token_.Clear();
    if (Current() != '"') FailHere();
    ReadText();
    if (has_unique_keys_) keys_.Add(token_.text());
    visitor_.Key(token_.text());
    token_.Clear();
    SkipBlanks();
    if (Current() != ':') FailHere();
    characters_.Advance();
  }

  void ReadScalar() {
    switch (Current()) {
      case '"':
        ReadText();
        visitor_.Text(token_.text());
        return;
      case 't':
        return ReadWord("true");
      case 'f':
        return ReadWord("false");
      case 'n':
        return ReadWord("null");
      case 'N':
        return ReadPythonWord("NaN");
      case 'I':
        return ReadPythonWord("Infinity");
      default:
        ReadNumber();
    }
  }

  void ReadWord(std::string_view word) {
    for (const char c : word) {
      if (Current() != c) FailHere();
      Keep();
    }
    visitor_.Other(token_.text());
  }

  void ReadPythonWord(std::string_view word) {
    if (!is_python_) FailHere();
    ReadWord(word);
  }

  void ReadDigits() {
    if (!IsDigit(Current())) FailHere();
    while (!characters_.is_at_end() && IsDigit(characters_.current())) {
      const std::string_view block = characters_.block();
      const auto end = std::ranges::find_if_not(block, IsDigit);
      const auto count = static_cast<size_t>(end - block.begin());
      token_.Append(block.substr(0, count));
      characters_.Advance(count);
    }
  }

  void ReadNumber() {
    const bool is_negative = Current() == '-';
    if (is_negative) {
      Keep();
      if (Current() == 'I') return ReadPythonWord("Infinity");
    }
    if (Current() == '0') {
      Keep();
    } else {
      ReadDigits();
    }
    bool is_whole = true;
    if (!characters_.is_at_end() && characters_.current() == '.') {
      is_whole = false;
      Keep();
      ReadDigits();
    }
    if (!characters_.is_at_end() && (characters_.current() | 0x20) == 'e') {
      is_whole = false;
      Keep();
      if (Current() == '+' || Current() == '-') Keep();
      ReadDigits();
    }
    ReportNumber(is_whole && !is_negative);
  }

  void ReportNumber(bool is_natural) {
    const std::string& text = token_.text();
    if (is_natural) {
      if (const auto number = ParseNumber<uint64_t>(text)) return visitor_.Whole(*number);
    }
    if (!is_python_ && std::isinf(std::strtod(text.c_str(), nullptr))) {
      Fail(EBADMSG, "the number {} before byte {} is too large", Quoted(text),
           characters_.position());
    }
    visitor_.Other(text);
  }

  void ReadText() {
    characters_.Advance();
    is_in_text_ = true;
    while (!Skip('"')) {
      Current();
      const std::string_view block = characters_.block();
      const auto end = std::ranges::find_if_not(block, IsPlain);
      const auto count = static_cast<size_t>(end - block.begin());
      if (count > 0) {
        token_.Append(block.substr(0, count));
        characters_.Advance(count);
      } else if (Skip('\\')) {
        ReadEscape();
      } else {
        ReadCharacter();
      }
    }
    is_in_text_ = false;
  }

  // Parses a character outside plain ASCII, which may cross the end of a block.
  void ReadCharacter() {
    const uint64_t begin = characters_.position();
    const auto lead = static_cast<unsigned char>(Current());
    if (lead < 0x20) FailHere();
    const size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    std::string bytes;
    while (bytes.size() < length && (bytes.empty() || !characters_.is_at_end())) {
      bytes += characters_.current();
      characters_.Advance();
    }
    if (!utf8::IsValid(bytes) && !(is_python_ && IsSurrogate(bytes))) {
      Fail(EBADMSG, "invalid JSON at byte {}: invalid UTF-8", begin);
    }
    token_.Append(bytes);
  }

  void ReadEscape() {
    constexpr std::string_view kNames = "\"\\/bfnrt";
    constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    const char c = Current();
    if (c == 'u') {
      characters_.Advance();
      return ReadUnits();
    }
    const size_t index = kNames.find(c);
    if (index == std::string_view::npos) FailHere();
    characters_.Advance();
    token_.Append(kMeanings.substr(index, 1));
  }

  // Parses the four digits after "\u", and the second escape of a surrogate pair.
  void ReadUnits() {
    char32_t unit = ReadUnit();
    while (IsHighSurrogate(unit)) {
      const char32_t high = unit;
      const bool has_next = Skip('\\');
      if (has_next && Current() == 'u') {
        characters_.Advance();
        unit = ReadUnit();
        if (IsLowSurrogate(unit)) {
          token_.Append(utf8::Encode(0x10000 + ((high - 0xD800) << 10U) + (unit - 0xDC00)));
          return;
        }
        TakeLone(high);
        continue;
      }
      TakeLone(high);
      if (has_next) ReadEscape();
      return;
    }
    if (IsLowSurrogate(unit)) return TakeLone(unit);
    token_.Append(utf8::Encode(unit));
  }

  void TakeLone(char32_t surrogate) {
    if (!is_python_) {
      Fail(EBADMSG, "invalid JSON before byte {}: \\u{:04x} is half of a surrogate pair",
           characters_.position(), static_cast<unsigned>(surrogate));
    }
    token_.Append(utf8::Encode(surrogate));
  }

  char32_t ReadUnit() {
    char32_t unit = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = Current();
      const char lower = static_cast<char>(c | 0x20);
      if (!IsDigit(c) && (lower < 'a' || lower > 'f')) FailHere();
      unit = unit * 16 + static_cast<char32_t>(IsDigit(c) ? c - '0' : lower - 'a' + 10);
      characters_.Advance();
    }
    return unit;
  }

  Characters characters_;
  uint64_t length_;
  bool is_python_;
  bool has_unique_keys_;
  bool is_in_text_ = false;  // The token is a text.
  Token token_;
  std::vector<bool> is_object_;  // For each open object or list.
  Keys keys_;
  Visitor& visitor_;
};

}  // namespace

void Read(const ByteSource& source, uint64_t offset, uint64_t length, Budget& budget,
          Visitor& visitor, Dialect dialect) {
  Reader reader(source, offset, length, budget, visitor, dialect);
  reader.ReadValue();
  if (!reader.SkipBlanks()) return;
  reader.ClearToken();
  reader.FailHere();
}

void ReadLines(const ByteSource& source, uint64_t offset, uint64_t length, Budget& budget,
               Visitor& visitor, Dialect dialect) {
  Reader reader(source, offset, length, budget, visitor, dialect);
  while (reader.SkipBlanks()) reader.ReadValue();
}

}  // namespace ckptfs::json
