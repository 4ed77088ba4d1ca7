// Times and durations of NumPy, as it prints them.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ckptfs::npy {

// What a number of a datetime64 or a timedelta64 counts.
struct TimeUnit {
  std::string_view name;  // "D", "ns"; "generic" if nobody has said; a literal.
  int64_t count = 1;      // 25 of "25s".
};

// The unit with that name: {"D", count}. The name is empty if NumPy has none.
TimeUnit TimeUnitNamed(std::string_view name, int64_t count);

// Those of "M8[25s]" and "m8", which TypeNamed accepts: what follows the two characters.
TimeUnit TimeUnitOf(std::string_view brackets);

// A datetime64 in ISO 8601, as exact as its unit: "2020-02-29", "2020-02-29T12", "NaT".
std::string DateTimeText(int64_t number, const TimeUnit& unit);

// A timedelta64: "75 seconds", "5 generic time units", "NaT".
std::string DurationText(int64_t number, const TimeUnit& unit);

}  // namespace ckptfs::npy
