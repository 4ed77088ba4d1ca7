#include "parser/format/torch/repr.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/budget.h"
#include "parser/base/encoding.h"
#include "parser/format/torch/globals.h"
#include "parser/format/torch/leaf.h"
#include "parser/format/torch/python.h"

namespace ckptfs::torch {
// datetime(bytes[, zone]) has the year in two bytes, most significant first, then month, day, hour,
// minute, second, and microseconds in three bytes; date and time have a part of these. The highest
// bit of the month or the hour is the fold.

namespace {

__extension__ using Wide = __int128;
__extension__ using UnsignedWide = unsigned __int128;

constexpr size_t kMostOfText = 4300;  // Bytes: the digits that Python reads of a number.

// ".000003" for 3 microseconds, empty for 0.
std::string Fraction(int64_t microseconds) {
  return microseconds == 0 ? "" : fmt::format(".{:06}", microseconds);
}

// Returns timedelta(days, seconds, microseconds) in microseconds; nothing if it is not one.
std::optional<Wide> Microseconds(const Value& delta) {
  if (CallableOf(delta) != KnownCallable::kTimeDelta) return std::nullopt;
  const Values parts = ItemsOf(ObjectOf(delta).arguments);
  constexpr std::array<int64_t, 3> kScales = {86'400'000'000, 1'000'000, 1};
  if (parts.size() > kScales.size()) return std::nullopt;
  Wide sum = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].kind != Kind::kInt) return std::nullopt;
    sum += Wide{parts[i].integer} * kScales[i];
  }
  constexpr int64_t kMost = 86'400'000'000'000'000;  // Python: less than 10^9 days.
  const bool is_possible = sum / 1000 < kMost && sum / 1000 > -kMost;
  return is_possible ? std::optional(sum) : std::nullopt;
}

std::optional<std::string> DurationText(const Value& delta) {
  const auto sum = Microseconds(delta);
  if (!sum) return std::nullopt;
  const Wide magnitude = *sum < 0 ? -*sum : *sum;
  const auto days = static_cast<int64_t>(magnitude / 86'400'000'000);
  const auto rest = static_cast<int64_t>(magnitude % 86'400'000'000);
  std::string text = *sum < 0 ? "-P" : "P";
  if (days > 0) text += fmt::format("{}D", days);
  if (rest == 0 && days > 0) return text;
  text += 'T';
  const int64_t seconds = rest / 1'000'000;
  if (seconds >= 3600) text += fmt::format("{}H", seconds / 3600);
  if (seconds / 60 % 60 > 0) text += fmt::format("{}M", seconds / 60 % 60);
  const int64_t parts = rest % 1'000'000;
  if (seconds % 60 > 0 || parts > 0 || rest == 0) {
    text += fmt::format("{}{}S", seconds % 60, Fraction(parts));
  }
  return text;
}

std::string OffsetText(Wide microseconds) {
  const auto magnitude = static_cast<int64_t>(microseconds < 0 ? -microseconds : microseconds);
  const int64_t seconds = magnitude / 1'000'000;
  std::string text =
      fmt::format("{}{:02}:{:02}", microseconds < 0 ? '-' : '+', seconds / 3600, seconds / 60 % 60);
  if (seconds % 60 != 0 || magnitude % 1'000'000 != 0) {
    text += fmt::format(":{:02}{}", seconds % 60, Fraction(magnitude % 1'000'000));
  }
  return text;
}

// A zone: its offset if it has only one, else its name in brackets.
std::string ZoneText(const Value& zone) {
  const KnownCallable known = CallableOf(zone);
  const Values arguments = pickle::IsObject(zone) ? ItemsOf(ObjectOf(zone).arguments) : Values();
  if (known == KnownCallable::kTimeZone && !arguments.empty()) {
    constexpr int64_t kDay = 86'400'000'000;
    const auto offset = Microseconds(arguments[0]);
    if (offset && *offset<kDay&& * offset> - kDay) return OffsetText(*offset);
  }
  const bool is_named = !arguments.empty() && arguments[0].kind == Kind::kText;
  constexpr size_t kMost = 128;  // Bytes.
  return fmt::format("[{}]",
                     is_named ? arguments[0].text().substr(0, kMost) : Repr(zone).substr(0, kMost));
}

std::string ClockText(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<unsigned>(static_cast<uint8_t>(bytes[i])); };
  const unsigned microseconds = at(3) << 16U | at(4) << 8U | at(5);
  return fmt::format("{:02}:{:02}:{:02}{}", at(0), at(1), at(2), Fraction(microseconds));
}

std::optional<std::string> TimeText(KnownCallable known, Values arguments, Budget& budget) {
  constexpr size_t kDate = 4;  // Bytes.
  constexpr size_t kClock = 6;
  if (arguments.empty() || arguments.size() > 2) return std::nullopt;
  std::string decoded;
  const auto bytes = BytesOf(arguments[0], decoded, budget);
  const size_t size =
      (known == KnownCallable::kTime ? 0 : kDate) + (known == KnownCallable::kDate ? 0 : kClock);
  if (!bytes || bytes->size() != size) return std::nullopt;
  std::string raw(*bytes);
  char& fold = raw[known == KnownCallable::kTime ? 0 : 2];
  fold = static_cast<char>(fold & 0x7F);
  std::string text;
  if (known != KnownCallable::kTime) {
    const auto at = [&](size_t i) { return static_cast<unsigned>(static_cast<uint8_t>(raw[i])); };
    text = fmt::format("{:04}-{:02}-{:02}", at(0) << 8U | at(1), at(2), at(3));
  }
  if (known == KnownCallable::kDateTime) text += 'T';
  if (known != KnownCallable::kDate) text += ClockText(std::string_view(raw).substr(size - kClock));
  if (arguments.size() == 2 && arguments[1].kind != Kind::kNone) text += ZoneText(arguments[1]);
  return text;
}

// The integer of a UUID: its 16 bytes, most significant first.
std::optional<std::string> UuidText(const Value& uuid) {
  const Value* number = AttributeOfObject(uuid, "int");
  if (number == nullptr) return std::nullopt;
  UnsignedWide bits = 0;
  if (number->kind == Kind::kInt && number->integer >= 0) {
    bits = static_cast<UnsignedWide>(number->integer);
  } else if (number->kind == Kind::kBigInt && number->length <= sizeof bits + 1) {
    if ((number->text().back() & 0x80) != 0) return std::nullopt;
    std::memcpy(&bits, number->text().data(), std::min<size_t>(number->length, sizeof bits));
  } else if (number->kind == Kind::kDecimal && number->length <= 39) {
    for (const char c : number->text()) {
      if (c < '0' || c > '9') return std::nullopt;
      bits = bits * 10 + static_cast<unsigned>(c - '0');
    }
  } else {
    return std::nullopt;
  }
  const auto high = static_cast<uint64_t>(bits >> 64U);
  const auto low = static_cast<uint64_t>(bits);
  return fmt::format("{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", high >> 32U, high >> 16U & 0xFFFFU,
                     high & 0xFFFFU, low >> 48U, low & 0xFFFF'FFFF'FFFFU);
}

std::optional<std::string> NumberText(Values arguments, std::string_view separator,
                                      Budget& budget) {
  std::string text;
  for (const Value& argument : arguments) {
    const bool is_text = argument.kind == Kind::kText && argument.length <= kMostOfText;
    const bool is_number = argument.kind == Kind::kInt || argument.kind == Kind::kBigInt ||
                           argument.kind == Kind::kDecimal;
    if (!is_text && !is_number) return std::nullopt;
    budget.Charge(kMostOfText);
    if (!text.empty()) text += separator;
    text += is_text ? std::string(argument.text()) : Decimal(argument);
  }
  return text.empty() ? std::nullopt : std::optional(text);
}

}  // namespace

bool IsStandard(KnownCallable known) {
  constexpr KnownCallable kStandard[] = {KnownCallable::kDate,     KnownCallable::kDateTime,
                                         KnownCallable::kTime,     KnownCallable::kTimeDelta,
                                         KnownCallable::kTimeZone, KnownCallable::kDecimal,
                                         KnownCallable::kFraction, KnownCallable::kUuid};
  return std::ranges::find(kStandard, known) != std::end(kStandard);
}

std::optional<std::string> StandardText(const Value& value, Budget& budget) {
  if (!pickle::IsObject(value)) return std::nullopt;
  const Values arguments = ItemsOf(ObjectOf(value).arguments);
  // Protocols 0 and 1 make a UUID by copyreg._reconstructor(UUID, object, None).
  const Value* made = ClassOfObject(value);
  switch (const KnownCallable known =
              made == nullptr ? KnownCallable::kUnknown : FindCallable(*made)) {
    case KnownCallable::kDateTime:
    case KnownCallable::kDate:
    case KnownCallable::kTime:
      return TimeText(known, arguments, budget);
    case KnownCallable::kTimeDelta:
      return DurationText(value);
    case KnownCallable::kTimeZone:
      return ZoneText(value);
    case KnownCallable::kDecimal:
      return arguments.size() == 1 ? NumberText(arguments, "", budget) : std::nullopt;
    case KnownCallable::kFraction: {
      auto text = arguments.size() <= 2 ? NumberText(arguments, "/", budget) : std::nullopt;
      if (text && text->ends_with("/1")) text->resize(text->size() - 2);
      return text;
    }
    case KnownCallable::kUuid:
      return UuidText(value);
    default:
      return std::nullopt;
  }
}

namespace {

std::string ReprOfText(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += "\\x";
      AppendHex(out, {&c, 1});
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::string ReprOfBytes(std::string_view bytes) {
  std::string out = "b'";
  for (const char c : bytes) {
    if (c == '\'' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c >= 0x20 && c < 0x7f) {
      out += c;
    } else {
      out += "\\x";
      AppendHex(out, {&c, 1});
    }
  }
  return out + "'";
}

constexpr size_t kMaxRepr = 1024;  // Bytes, about.

// Overlong names are truncated, since thousands of objects may share one.
std::string ReprOfGlobal(const Value& global) {
  const Values names = ItemsOf(global);
  return fmt::format("{}.{}", names[0].text().substr(0, kMaxRepr),
                     names[1].text().substr(0, kMaxRepr));
}
constexpr int kMaxReprDepth = 6;

void AppendRepr(std::string& out, const Value& value, int depth);

void AppendReprItems(std::string& out, Values items, int depth) {
  bool is_first = true;
  for (const Value& item : items) {
    if (!std::exchange(is_first, false)) out += ", ";
    if (out.size() > kMaxRepr) {
      out += "...";
      return;
    }
    AppendRepr(out, item, depth);
  }
}

void AppendReprContainer(std::string& out, const Value& value, int depth) {
  const bool is_tuple = value.kind == Kind::kTuple;
  const bool is_list = value.kind == Kind::kList;
  if (value.kind == Kind::kFrozenSet) out += "frozenset(";
  out += is_tuple ? '(' : is_list ? '[' : '{';
  if (depth >= kMaxReprDepth) {
    out += "...";
  } else if (value.kind == Kind::kDict) {
    const Values pairs = ItemsOf(value);
    for (size_t i = 0; i + 1 < pairs.size() && out.size() < kMaxRepr; i += 2) {
      if (i > 0) out += ", ";
      AppendRepr(out, pairs[i], depth + 1);
      out += ": ";
      AppendRepr(out, pairs[i + 1], depth + 1);
    }
  } else {
    AppendReprItems(out, ItemsOf(value), depth + 1);
    if (is_tuple && ItemsOf(value).size() == 1) out += ',';
  }
  out += is_tuple ? ')' : is_list ? ']' : '}';
  if (value.kind == Kind::kFrozenSet) out += ')';
}

// Calls that Python prints as such, with their arguments; of all others the class.
void AppendReprObject(std::string& out, const Object& object, int depth) {
  const KnownCallable known = FindCallable(object.target);
  const Values arguments = ItemsOf(object.arguments);
  if (object.target.kind != Kind::kGlobal || depth >= kMaxReprDepth) {
    out += "<object>";
  } else if (known == KnownCallable::kSize && arguments.size() == 1 &&
             arguments[0].kind == Kind::kTuple) {
    out += "torch.Size([";
    AppendReprItems(out, ItemsOf(arguments[0]), depth + 1);
    out += "])";
  } else if (known == KnownCallable::kEncode && !arguments.empty() &&
             arguments[0].kind == Kind::kText) {
    const auto bytes = BytesOfLatin1(arguments[0].text().substr(0, kMaxRepr));
    out += bytes ? ReprOfBytes(*bytes) : "<bytes>";
  } else if (known == KnownCallable::kPrintedCall || known == KnownCallable::kComplex) {
    std::string name = ReprOfGlobal(object.target);
    if (name.starts_with("builtins.")) name.erase(0, name.find('.') + 1);
    if (name == "xrange") name = "range";
    out += name + "(";
    AppendReprItems(out, arguments, depth + 1);
    out += ")";
  } else {
    out += fmt::format("<{}>", ReprOfGlobal(object.target));
  }
}

void AppendRepr(std::string& out, const Value& value, int depth) {
  switch (value.kind) {
    case Kind::kNone:
      out += "None";
      return;
    case Kind::kBool:
      out += value.integer != 0 ? "True" : "False";
      return;
    case Kind::kInt:
    case Kind::kBigInt:
    case Kind::kDecimal:
      out += Decimal(value);
      return;
    case Kind::kFloat:
      out += fmt::format("{}", value.real);
      if (out.find_first_of(".en", out.size() - fmt::formatted_size("{}", value.real)) ==
          std::string::npos) {
        out += ".0";
      }
      return;
    case Kind::kText:
      out += ReprOfText(value.text().substr(0, kMaxRepr));
      return;
    case Kind::kBytes:
      out += ReprOfBytes(value.text().substr(0, kMaxRepr));
      return;
    case Kind::kByteArray:
      out += fmt::format("bytearray({})", ReprOfBytes(value.text().substr(0, kMaxRepr)));
      return;
    case Kind::kGlobal:
      out += ReprOfGlobal(value);
      return;
    case Kind::kTuple:
    case Kind::kList:
    case Kind::kSet:
    case Kind::kFrozenSet:
    case Kind::kDict:
      AppendReprContainer(out, value, depth);
      return;
    case Kind::kCall:
    case Kind::kNew:
      AppendReprObject(out, ObjectOf(value), depth);
      return;
    case Kind::kPersistent:
      out += "<storage>";
      return;
  }
}

// Larger integers are shown in hexadecimal: Python limits conversions to and from decimal, whose
// time is quadratic, to 4,300 digits.
constexpr size_t kMostDecimalBytes = 1785;

std::string HexOfBytes(std::string_view bytes, bool is_negative) {
  while (bytes.size() > 1 && bytes.back() == 0) bytes.remove_suffix(1);
  CountWork(bytes.size() / 4);
  std::string digits = is_negative ? "-0x" : "0x";
  digits.reserve(digits.size() + 2 * bytes.size());
  AppendHex(digits, std::string(bytes.rbegin(), bytes.rend()));
  return digits;
}

// The digits of a number in two's complement.
std::string DigitsOfBytes(std::string_view little_endian) {
  std::string bytes(little_endian);
  const bool is_negative =
      !bytes.empty() && (static_cast<unsigned char>(bytes.back()) & 0x80U) != 0;
  if (is_negative) {
    unsigned carry = 1;
    for (char& c : bytes) {
      const unsigned sum = (~static_cast<unsigned char>(c) & 0xFFU) + carry;
      c = static_cast<char>(sum & 0xFFU);
      carry = sum >> 8U;
    }
  }
  if (bytes.size() > kMostDecimalBytes) return HexOfBytes(bytes, is_negative);
  CountWork(bytes.size() * bytes.size() / 32);
  // Groups of nine digits, the least significant first.
  std::vector<uint32_t> groups;
  for (size_t i = bytes.size(); i-- > 0;) {
    uint64_t carry = static_cast<unsigned char>(bytes[i]);
    for (uint32_t& group : groups) {
      carry += uint64_t{group} << 8U;
      group = static_cast<uint32_t>(carry % 1'000'000'000);
      carry /= 1'000'000'000;
    }
    if (carry != 0) groups.push_back(static_cast<uint32_t>(carry));
  }
  if (groups.empty()) return "0";
  std::string digits = (is_negative ? "-" : "") + std::to_string(groups.back());
  for (size_t i = groups.size() - 1; i-- > 0;) digits += fmt::format("{:09}", groups[i]);
  return digits;
}

}  // namespace

std::string Decimal(const Value& integer) {
  if (integer.kind == Kind::kInt) return std::to_string(integer.integer);
  if (integer.kind == Kind::kBigInt) return DigitsOfBytes(integer.text());
  return std::string(integer.text());
}

std::string Repr(const Value& value) {
  std::string out;
  AppendRepr(out, value, 0);
  return out;
}

}  // namespace ckptfs::torch
