#include "parser/codec/json_reader.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <memory_resource>
#include <span>
#include <vector>

#include "parser/base/error.h"
#include "parser/base/secret_hash.h"
#include "parser/base/utf8.h"

namespace ckptfs::json {
namespace {

// The characters of a text, fetched a block at a time.
class Characters {
 public:
  static constexpr uint64_t kMostOfBlock = 65536;  // Bytes.

  Characters(const ByteSource& source, uint64_t offset, uint64_t length, Budget& budget)
      : source_(source),
        budget_(budget),
        offset_(offset),
        length_(length),
        capacity_(static_cast<size_t>(std::min(length, kMostOfBlock))),
        buffer_(std::make_unique_for_overwrite<char[]>(capacity_)) {
    constexpr uint64_t kMostAtOnce = uint64_t{16} << 20U;  // Bytes.
    const ByteRange ahead{.offset = offset, .length = std::min(length, kMostAtOnce)};
    if (length > 0) source.Prefetch({&ahead, 1});
    Fetch();
  }

  bool is_at_end() const { return block_.empty(); }
  char current() const { return block_.front(); }
  uint64_t position() const { return fetched_ - block_.size(); }

  // What is there without fetching more.
  std::string_view block() const { return block_; }

  void Advance(size_t count = 1) {
    block_.remove_prefix(count);
    if (block_.empty()) Fetch();
  }

 private:
  void Fetch() {
    const auto length = std::min<uint64_t>(capacity_, length_ - fetched_);
    if (length == 0) return;
    budget_.Work(length / 4);
    const std::span block(buffer_.get(), static_cast<size_t>(length));
    source_.ReadAt(offset_ + fetched_, std::as_writable_bytes(block));
    fetched_ += length;
    block_ = {block.data(), block.size()};
  }

  const ByteSource& source_;
  Budget& budget_;
  uint64_t offset_;
  uint64_t length_;
  uint64_t fetched_ = 0;
  std::string_view block_;  // What is left of it.

  // Most documents are small, and there may be very many of them: nothing larger is allocated, and
  // nothing is zeroed.
  size_t capacity_;
  std::unique_ptr<char[]> buffer_;
};

// The keys of all objects that are not at their end yet.
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

// The token at hand: a text that is decoded, or a number or word as it is written. Its memory is
// charged as long as this lives.
class Token {
 public:
  explicit Token(Budget& budget) : budget_(budget) {}
  Token(const Token&) = delete;
  Token& operator=(const Token&) = delete;
  ~Token() { budget_.Refund(charged_); }

  std::string& text() { return text_; }
  void Clear() { text_.clear(); }

  void Append(std::string_view more) {
    constexpr size_t kFree = 4096;
    if (const size_t want = text_.size() + more.size(); want > charged_ + kFree) {
      const size_t least = std::max(want, 2 * charged_);
      budget_.Charge(least);
      text_.reserve(least);  // The old memory is there as long as the new one is filled.
      budget_.Refund(charged_);
      charged_ = least;
    }
    text_ += more;
  }

 private:
  Budget& budget_;
  std::string text_;
  size_t charged_ = 0;
};

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsPlain(char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; }
bool IsHighSurrogate(char32_t unit) { return unit >= 0xD800 && unit < 0xDC00; }
bool IsLowSurrogate(char32_t unit) { return unit >= 0xDC00 && unit < 0xE000; }

// Whether `bytes` are what UTF-8 would give a surrogate. Python decodes JSON from bytes so.
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
    if (has_mark) Fail(EBADMSG, "no JSON at byte 0: there is a byte order mark");
  }

  bool SkipBlanks() {
    while (!characters_.is_at_end() && IsBlank(characters_.current())) characters_.Advance();
    return !characters_.is_at_end();
  }

  // A value with all that is in it. What is nested takes no stack.
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
      Fail(EBADMSG, "the JSON is not complete at byte {}, its end", length_);
    }
    const char c = characters_.current();
    if (c == '\0') Fail(EBADMSG, "no JSON at byte {}: there is a NUL", characters_.position());
    Fail(EBADMSG, "no JSON at byte {}, near {}", characters_.position(),
         Quoted(is_in_text_ ? '"' + token_.text() + c : token_.text() + c));
  }

  void ClearToken() { token_.Clear(); }

 private:
  char Current() {
    if (characters_.is_at_end()) FailHere();
    return characters_.current();
  }

  // Whether the next character is `c`, which is then passed.
  bool Skip(char c) {
    if (characters_.is_at_end() || characters_.current() != c) return false;
    characters_.Advance();
    return true;
  }

  // Passes the next character, which becomes part of the token.
  void Keep() {
    token_.Append({characters_.block().data(), 1});
    characters_.Advance();
  }

  // A value up to the first one in it that has no other in itself.
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
    TellNumber(is_whole && !is_negative);
  }

  void TellNumber(bool is_natural) {
    const std::string& text = token_.text();
    constexpr size_t kMostDigits = 20;
    if (is_natural && text.size() <= kMostDigits) {
      uint64_t number = 0;
      bool is_too_large = false;
      for (const char c : text) {
        is_too_large |= __builtin_mul_overflow(number, uint64_t{10}, &number);
        is_too_large |= __builtin_add_overflow(number, static_cast<uint64_t>(c - '0'), &number);
      }
      if (!is_too_large) return visitor_.Whole(number);
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

  // A character that is not plain ASCII; a block may end in it.
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
      Fail(EBADMSG, "no JSON at byte {}: the text is no UTF-8", begin);
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

  // What follows "\u": the four digits of a unit, and where that is the first half of a pair, the
  // second half, which is an escape, too.
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
      Fail(EBADMSG, "no JSON before byte {}: \\u{:04x} is half of a surrogate pair",
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
  bool is_in_text_ = false;  // The token is one.
  Token token_;
  std::vector<bool> is_object_;  // Of what is open; else it is a list.
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
