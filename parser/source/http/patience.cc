#include "parser/source/http/patience.h"

#include <algorithm>

namespace ckptfs::http {

Patience::Duration Patience::Left(Clock::time_point now) const {
  const Duration earned(received_ * 1000 / kSlowestLink);
  const Clock::time_point end = start_ + allowed_ + earned;
  return now >= end ? Duration(0) : std::chrono::ceil<Duration>(end - now);
}

std::optional<Patience::Duration> Patience::Wait(Clock::time_point now, Duration asked_for) {
  constexpr Duration kFirst(100);
  constexpr Duration kLongest(10'000);
  constexpr uint64_t kGoodRun = 64 << 10;  // Bytes after which a fault is a new one.
  const Duration left = Left(now);
  if (left == Duration(0)) return std::nullopt;
  if (received_ - received_at_fault_ >= kGoodRun) faults_ = 0;
  received_at_fault_ = received_;
  const Duration most = std::min(kFirst * (1 << std::min(faults_++, 10)), kLongest);
  const auto drawn = std::chrono::duration_cast<Duration>(most * random_());
  return std::min(std::max(drawn, asked_for), left);
}

}  // namespace ckptfs::http
