// datetime(bytes[, zone]) has the year in two bytes, most significant first, then month, day, hour,
// minute, second, and microseconds in three bytes; date and time have their part of that. The
// highest bit of the first byte that can have it is the fold.

#include "parser/format/torch/standard.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <span>
#include <string_view>

#include "parser/format/torch/attributes.h"
#include "parser/format/torch/bytes.h"
#include "parser/format/torch/repr.h"
#include "parser/format/torch/vocabulary.h"

namespace ckptfs::torch {
namespace {

using pickle::ItemsOf;
using pickle::Kind;
using pickle::ObjectOf;
using pickle::Value;
using Values = std::span<const Value>;

__extension__ using Wide = __int128;
__extension__ using UnsignedWide = unsigned __int128;

constexpr size_t kMostOfText = 4300;  // Bytes: the digits that Python reads of a number.

Known CallableOf(const Value& value) {
  return pickle::IsObject(value) ? KnownCallable(ObjectOf(value).target) : Known::kUnknown;
}

// ".000003" of 3 microseconds, nothing of 0.
std::string Fraction(int64_t microseconds) {
  return microseconds == 0 ? "" : fmt::format(".{:06}", microseconds);
}

// timedelta(days, seconds, microseconds), in microseconds. Nothing if it is none.
std::optional<Wide> Microseconds(const Value& delta) {
  if (CallableOf(delta) != Known::kTimeDelta) return std::nullopt;
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
  const Known known = CallableOf(zone);
  const Values arguments =
      pickle::IsObject(zone) ? ItemsOf(ObjectOf(zone).arguments) : std::span<const Value>();
  if (known == Known::kTimeZone && !arguments.empty()) {
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

std::optional<std::string> TimeText(Known known, Values arguments, Budget& budget) {
  constexpr size_t kDate = 4;  // Bytes.
  constexpr size_t kClock = 6;
  if (arguments.empty() || arguments.size() > 2) return std::nullopt;
  std::string decoded;
  const auto bytes = BytesOf(arguments[0], decoded, budget);
  const size_t size = (known == Known::kTime ? 0 : kDate) + (known == Known::kDate ? 0 : kClock);
  if (!bytes || bytes->size() != size) return std::nullopt;
  std::string raw(*bytes);
  char& fold = raw[known == Known::kTime ? 0 : 2];
  fold = static_cast<char>(fold & 0x7F);
  std::string text;
  if (known != Known::kTime) {
    const auto at = [&](size_t i) { return static_cast<unsigned>(static_cast<uint8_t>(raw[i])); };
    text = fmt::format("{:04}-{:02}-{:02}", at(0) << 8U | at(1), at(2), at(3));
  }
  if (known == Known::kDateTime) text += 'T';
  if (known != Known::kDate) text += ClockText(std::string_view(raw).substr(size - kClock));
  if (arguments.size() == 2 && arguments[1].kind != Kind::kNone) text += ZoneText(arguments[1]);
  return text;
}

// The number that a UUID is: its 16 bytes, most significant first.
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

bool IsStandard(Known known) {
  constexpr Known kStandard[] = {Known::kDate,      Known::kDateTime, Known::kTime,
                                 Known::kTimeDelta, Known::kTimeZone, Known::kDecimal,
                                 Known::kFraction,  Known::kUuid};
  return std::ranges::find(kStandard, known) != std::end(kStandard);
}

std::optional<std::string> StandardText(const Value& value, Budget& budget) {
  if (!pickle::IsObject(value)) return std::nullopt;
  const Values arguments = ItemsOf(ObjectOf(value).arguments);
  // Protocols 0 and 1 make a UUID by copyreg._reconstructor(UUID, object, None).
  const Value* made = ClassOfObject(value);
  switch (const Known known = made == nullptr ? Known::kUnknown : KnownCallable(*made)) {
    case Known::kDateTime:
    case Known::kDate:
    case Known::kTime:
      return TimeText(known, arguments, budget);
    case Known::kTimeDelta:
      return DurationText(value);
    case Known::kTimeZone:
      return ZoneText(value);
    case Known::kDecimal:
      return arguments.size() == 1 ? NumberText(arguments, "", budget) : std::nullopt;
    case Known::kFraction: {
      auto text = arguments.size() <= 2 ? NumberText(arguments, "/", budget) : std::nullopt;
      if (text && text->ends_with("/1")) text->resize(text->size() - 2);
      return text;
    }
    case Known::kUuid:
      return UuidText(value);
    default:
      return std::nullopt;
  }
}

}  // namespace ckptfs::torch
