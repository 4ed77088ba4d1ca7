#include "parser/codec/npy/time.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>

namespace ckptfs::npy {
namespace {

// A number times its unit does not fit in 64 bits.
__extension__ using Wide = __int128;
__extension__ using UnsignedWide = unsigned __int128;

constexpr int64_t kNotATime = std::numeric_limits<int64_t>::min();

struct Row {
  std::string_view name;
  std::string_view plural;
  int64_t seconds;  // Of one; 0 of those that are parts of a second, or no fixed number of them.
  int digits;       // Of the fraction of a second.
};

constexpr Row kRows[] = {
    {"Y", "years", 0, 0},         {"M", "months", 0, 0},
    {"W", "weeks", 604'800, 0},   {"D", "days", 86'400, 0},
    {"h", "hours", 3600, 0},      {"m", "minutes", 60, 0},
    {"s", "seconds", 1, 0},       {"ms", "milliseconds", 0, 3},
    {"us", "microseconds", 0, 6}, {"ns", "nanoseconds", 0, 9},
    {"ps", "picoseconds", 0, 12}, {"fs", "femtoseconds", 0, 15},
    {"as", "attoseconds", 0, 18}, {"generic", "generic time units", 0, 0},
};

const Row& RowOf(std::string_view name) {
  const auto* row = std::ranges::find(kRows, name, &Row::name);
  return row != std::end(kRows) ? *row : std::end(kRows)[-1];
}

Wide FloorDivide(Wide a, Wide b) { return a / b - (a % b < 0 ? 1 : 0); }

std::string Text(Wide number) {
  const auto magnitude = static_cast<UnsignedWide>(number < 0 ? -number : number);
  return fmt::format("{}{}", number < 0 ? "-" : "", magnitude);
}

// A year has four characters at least, as numpy has it: "0001", "-001".
std::string YearText(Wide year) {
  std::string digits = Text(year < 0 ? -year : year);
  const size_t width = year < 0 ? 3 : 4;
  if (digits.size() < width) digits.insert(0, width - digits.size(), '0');
  return (year < 0 ? "-" : "") + digits;
}

// The proleptic Gregorian date of a day: https://howardhinnant.github.io/date_algorithms.html.
std::string DateText(Wide days_since_1970) {
  constexpr int64_t kDaysOfEra = 146'097;  // Of 400 years, which begin with March.
  const Wide days = days_since_1970 + 719'468;
  const Wide era = FloorDivide(days, kDaysOfEra);
  const auto day_of_era = static_cast<int64_t>(days - era * kDaysOfEra);
  const int64_t year_of_era =
      (day_of_era - day_of_era / 1460 + day_of_era / 36'524 - day_of_era / 146'096) / 365;
  const int64_t day_of_year =
      day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const int64_t month_from_march = (5 * day_of_year + 2) / 153;
  const int64_t day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
  const int64_t month = month_from_march < 10 ? month_from_march + 3 : month_from_march - 9;
  const Wide year = era * 400 + year_of_era + (month <= 2 ? 1 : 0);
  return fmt::format("{}-{:02}-{:02}", YearText(year), month, day);
}

// `scale` ticks are a second, which has `digits` decimal places then.
std::string InstantText(Wide ticks, int64_t scale, int digits) {
  const Wide seconds = FloorDivide(ticks, scale);
  const Wide days = FloorDivide(seconds, 86'400);
  const auto of_day = static_cast<int64_t>(seconds - days * 86'400);
  std::string text = fmt::format("{}T{:02}:{:02}:{:02}", DateText(days), of_day / 3600,
                                 of_day / 60 % 60, of_day % 60);
  if (digits > 0) {
    text += fmt::format(".{:0{}}", static_cast<int64_t>(ticks - seconds * scale), digits);
  }
  return text;
}

}  // namespace

TimeUnit TimeUnitNamed(std::string_view name, int64_t count) {
  const auto* row = std::ranges::find(kRows, name, &Row::name);
  return row != std::end(kRows) ? TimeUnit{row->name, count} : TimeUnit{"", count};
}

TimeUnit TimeUnitOf(std::string_view brackets) {
  if (brackets.size() < 3) return TimeUnitNamed("generic", 1);
  brackets = brackets.substr(1, brackets.size() - 2);
  int64_t count = 1;
  const auto parsed = std::from_chars(brackets.data(), brackets.data() + brackets.size(), count);
  brackets.remove_prefix(static_cast<size_t>(parsed.ptr - brackets.data()));
  return TimeUnitNamed(brackets, count);
}

std::string DateTimeText(int64_t number, const TimeUnit& unit) {
  if (number == kNotATime) return "NaT";
  const Row& row = RowOf(unit.name);
  const Wide ticks = Wide{number} * unit.count;
  if (unit.name == "Y") return YearText(1970 + ticks);
  if (unit.name == "M") {
    const Wide years = FloorDivide(ticks, 12);
    return fmt::format("{}-{:02}", YearText(1970 + years),
                       static_cast<int>(ticks - years * 12) + 1);
  }
  if (row.seconds >= 86'400) return DateText(ticks * (row.seconds / 86'400));
  if (row.seconds > 0) {
    const std::string text = InstantText(ticks * row.seconds, 1, 0);
    const size_t cut = row.seconds == 3600 ? 6 : row.seconds == 60 ? 3 : 0;
    return text.substr(0, text.size() - cut);
  }
  if (row.digits == 0) return Text(ticks);  // Of no unit: NumPy has no text for it.
  int64_t scale = 1;
  for (int i = 0; i < row.digits; ++i) scale *= 10;
  return InstantText(ticks, scale, row.digits);
}

std::string DurationText(int64_t number, const TimeUnit& unit) {
  if (number == kNotATime) return "NaT";
  return fmt::format("{} {}", Text(Wide{number} * unit.count), RowOf(unit.name).plural);
}

}  // namespace ckptfs::npy
