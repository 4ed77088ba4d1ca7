// The descr of a type has its width, but not always its kind: types of ml_dtypes that are unknown
// to NumPy (bfloat16, float8_e4m3fn, int4, ...) are "<V2" and "<V1", or names that NumPy rejects
// ("<f1" is float8_e5m2, "<W4" is complex32). They are read as bytes, like structures, each of
// whose fields has its own byte order.

#include "parser/codec/npy/type.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>
#include <vector>

#include "parser/base/dtype.h"
#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/base/text.h"

namespace ckptfs::npy {
namespace {

// Escapes: the letter after the backslash, and its meaning.
struct Escaped {
  char letter;
  char32_t code;
};
constexpr Escaped kEscapes[] = {{'\\', '\\'}, {'\'', '\''}, {'"', '"'},
                                {'n', '\n'},  {'r', '\r'},  {'t', '\t'}};

// Escapes followed by a number of so many hexadecimal digits.
struct Numbered {
  char letter;
  size_t digits;
};
constexpr Numbered kNumbered[] = {{'x', 2}, {'u', 4}, {'U', 8}};

}  // namespace

void Literal::FailAt(std::string_view what) {
  SkipSpace();
  if (position_ == text_.size()) {
    Fail(EBADMSG, "header: unexpected end at byte {} (expected {})", base_ + position_, what);
  }
  constexpr size_t kShown = 16;  // Bytes.
  Fail(EBADMSG, "header at byte {}: expected {}, found {}", base_ + position_, what,
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
  const auto code = ParseNumber<uint32_t>(digits, 16);
  if (digits.size() != numbered->digits || !code || *code > 0x10FFFF ||
      (*code >= 0xD800 && *code <= 0xDFFF)) {
    fail();
  }
  position_ += digits.size();
  return *code;
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
  std::string_view rest = text_.substr(position_);
  const bool begins_with_zero = rest.starts_with('0');
  const auto number = TakeNumber<int64_t>(rest);
  const size_t length = text_.size() - position_ - rest.size();
  // A zero in front made a number octal in Python 2 and is an error in Python 3.
  if (!number || (begins_with_zero && length > 1)) FailAt(kWanted);
  position_ += length;
  if (dialect_.has_long_ints && position_ < text_.size() && text_[position_] == 'L') ++position_;
  return static_cast<uint64_t>(*number);
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
  if (position_ != text_.size()) FailAt("the end of the header");
}

namespace {

constexpr size_t kMaxFields = 10'000;

struct CodeRow {
  std::string_view code;
  Dtype dtype;
  uint8_t item_size;
};

constexpr CodeRow kCodeRows[] = {
    {"b1", Dtype::kBool, 1},      {"i1", Dtype::kInt8, 1},         {"u1", Dtype::kUint8, 1},
    {"i2", Dtype::kInt16, 2},     {"u2", Dtype::kUint16, 2},       {"i4", Dtype::kInt32, 4},
    {"u4", Dtype::kUint32, 4},    {"i8", Dtype::kInt64, 8},        {"u8", Dtype::kUint64, 8},
    {"f2", Dtype::kFloat16, 2},   {"f4", Dtype::kFloat32, 4},      {"f8", Dtype::kFloat64, 8},
    {"c8", Dtype::kComplex64, 8}, {"c16", Dtype::kComplex128, 16}, {"f1", Dtype::kOpaque, 1},
    {"f12", Dtype::kOpaque, 12},  {"f16", Dtype::kOpaque, 16},     {"c24", Dtype::kOpaque, 24},
    {"c32", Dtype::kOpaque, 32},  {"W4", Dtype::kOpaque, 4},
};

constexpr std::string_view kOrderless = "SVO";  // Kinds without a byte order.

constexpr std::string_view kUnits[] = {"Y",  "M",  "W",  "D",  "h",  "m", "s",
                                       "ms", "us", "ns", "ps", "fs", "as"};

// "[ns]", "[25us]", "[h/4]", or nothing at all.
bool IsUnit(std::string_view text) {
  if (text.empty()) return true;
  if (!text.starts_with('[') || !text.ends_with(']') || text.size() < 3) return false;
  text = text.substr(1, text.size() - 2);
  TakeNumber<int64_t>(text);
  const size_t slash = text.find('/');
  if (std::ranges::find(kUnits, text.substr(0, slash)) == std::end(kUnits)) return false;
  if (slash == std::string_view::npos) return true;
  text.remove_prefix(slash + 1);
  return !text.empty() && TakeNumber<int64_t>(text) && text.empty();
}

// Texts and bytes, whose length is a number of characters.
std::optional<Type> SizedType(char kind, std::string_view digits) {
  if (digits.empty()) return std::nullopt;
  const auto count = TakeNumber<int64_t>(digits);
  if (!count || !digits.empty()) return std::nullopt;
  constexpr int64_t kCharacter = 4;  // Bytes of one in a text: UCS-4.
  int64_t size = *count;
  const bool is_text = kind == 'U';
  if (is_text && __builtin_mul_overflow(size, kCharacter, &size)) return std::nullopt;
  return Type{.item_size = static_cast<uint64_t>(size),
              .swap_size = is_text ? uint64_t{kCharacter} : 1,
              .name = fmt::format("{}{}", kind == 'a' ? 'S' : kind, *count)};
}

std::optional<Type> TypeOfCode(std::string_view code) {
  if (const auto* row = std::ranges::find(kCodeRows, code, &CodeRow::code);
      row != std::end(kCodeRows)) {
    const uint64_t swap_size = SwapSize(row->dtype);
    return Type{.dtype = row->dtype,
                .item_size = row->item_size,
                .swap_size = swap_size,
                .name = std::string(code)};
  }
  if (code == "O" || code == "O4" || code == "O8") {
    return Type{.has_objects = true, .name = std::string(code)};
  }
  if ((code.starts_with("M8") || code.starts_with("m8")) && IsUnit(code.substr(2))) {
    return Type{.item_size = 8, .swap_size = 8, .name = std::string(code)};
  }
  constexpr std::string_view kSized = "SaUV";
  if (code.empty() || kSized.find(code[0]) == std::string_view::npos) return std::nullopt;
  return SizedType(code[0], code.substr(1));
}

// Reads the fields of a structure, and of those in it.
class Structure {
 public:
  Structure(Literal& literal, std::string& json) : literal_(literal), json_(json) {}

  // Parses the type of a field, or of the array itself.
  Type TakeAny() {
    if (literal_.Peek() == '[') return TakeFields();
    if (literal_.Peek() != '\'' && literal_.Peek() != '"' && literal_.Peek() != 'u' &&
        literal_.Peek() != 'U') {
      literal_.FailAt("a type or a list of fields");
    }
    const std::string text = literal_.Text();
    json::AppendString(json_, text);
    constexpr std::string_view kOrders = "<>|=";
    const bool has_order = !text.empty() && kOrders.find(text[0]) != std::string_view::npos;
    auto type =
        TypeNamed(has_order ? text[0] : '=', std::string_view(text).substr(has_order ? 1 : 0));
    if (!type) Fail(EBADMSG, "header: unsupported numpy dtype {}", Quoted(text));
    return *std::move(type);
  }

 private:
  struct Field {
    std::string name;
    std::string title;
    Type type;
    bool is_padding = false;
  };

  Type TakeFields() {
    Type whole{};
    std::vector<std::string> names;
    json_ += '[';
    literal_.Open('[');
    if (literal_.Peek() == ']') {
      literal_.Close(']');
    } else {
      do {
        Field field = TakeField();
        json_ += ',';
        whole.has_objects |= field.type.has_objects;
        if (__builtin_add_overflow(whole.item_size, field.type.item_size, &whole.item_size) ||
            static_cast<int64_t>(whole.item_size) < 0) {
          FailSize();
        }
        if (field.is_padding) continue;
        if (!field.title.empty() && field.title != field.name) {
          names.push_back(std::move(field.title));
        }
        names.push_back(std::move(field.name));
      } while (literal_.HasMore(']'));
      json_.pop_back();
    }
    json_ += ']';
    std::ranges::sort(names);
    const auto twice = std::ranges::adjacent_find(names);
    if (twice != names.end()) {
      Fail(EBADMSG, "header: two fields of a structure are called {}", Quoted(*twice));
    }
    whole.name = fmt::format("|V{}", whole.item_size);
    return whole;
  }

  Field TakeField() {
    if (++fields_ > kMaxFields) {
      Fail(EOVERFLOW, "header: has more than {} fields", kMaxFields);
    }
    Field field;
    json_ += '[';
    literal_.Open('(');
    TakeName(field);
    json_ += ',';
    literal_.Take(',');
    const bool is_void = literal_.Peek() != '[';
    field.type = TakeAny();
    if (literal_.HasMore(')')) {
      json_ += ',';
      TakeShape(field.type);
      if (literal_.HasMore(')')) literal_.FailAt("the end of the field");
    }
    json_ += ']';
    field.is_padding = field.name.empty() && is_void && field.type.name.starts_with("|V");
    return field;
  }

  void TakeName(Field& field) {
    if (literal_.Peek() != '(') {
      field.name = literal_.Text();
      json::AppendString(json_, field.name);
      return;
    }
    literal_.Open('(');
    field.title = literal_.Text();
    literal_.Take(',');
    field.name = literal_.Text();
    if (literal_.HasMore(')')) literal_.FailAt("the end of title and name");
    json_ += '[';
    json::AppendString(json_, field.title);
    json_ += ',';
    json::AppendString(json_, field.name);
    json_ += ']';
  }

  // Of an array in each element: a number or a tuple of them.
  void TakeShape(Type& type) {
    const bool is_tuple = literal_.Peek() == '(';
    const std::vector<uint64_t> shape =
        is_tuple ? literal_.Sizes() : std::vector<uint64_t>{literal_.Size()};
    for (const uint64_t size : shape) {
      int64_t total = 0;
      if (__builtin_mul_overflow(type.item_size, size, &total)) FailSize();
      type.item_size = static_cast<uint64_t>(total);
    }
    json_ += is_tuple ? fmt::format("[{}]", fmt::join(shape, ",")) : std::to_string(shape[0]);
  }

  [[noreturn]] static void FailSize() {
    Fail(EOVERFLOW, "header: its elements need more than 2^63 bytes");
  }

  Literal& literal_;
  std::string& json_;
  size_t fields_ = 0;
};

}  // namespace

std::optional<Type> TypeNamed(char order, std::string_view code) {
  auto type = TypeOfCode(code);
  if (!type) return type;
  const bool is_orderless = type->dtype == Dtype::kOpaque
                                ? kOrderless.find(type->name[0]) != std::string_view::npos
                                : type->item_size == 1;
  if (is_orderless) {
    order = '|';
  } else if (order != '>') {
    order = '<';
  }
  type->is_big_endian = type->swap_size > 1 && order == '>';
  type->name.insert(type->name.begin(), order);
  return type;
}

std::string LittleEndianName(const Type& type) {
  return type.is_big_endian ? "<" + type.name.substr(1) : type.name;
}

Type TakeType(Literal& literal, std::string& json) { return Structure(literal, json).TakeAny(); }

}  // namespace ckptfs::npy
