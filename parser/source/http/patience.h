// How long to try again, and how long to wait in between.

#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

namespace ckptfs::http {

// The time that one fetch has: what the user allows, and more for bytes that have arrived, at the
// rate of a link that is slow. So what gets somewhere is never given up, however long it is, and a
// server that sends a byte now and then is.
//
// Waits grow from 100 ms to 10 s, and are drawn at random between nothing and that: many clients
// that one server has failed must not come back all at once. Belongs to one thread.
class Patience {
 public:
  using Clock = std::chrono::steady_clock;
  using Duration = std::chrono::milliseconds;

  // `random` returns numbers from 0 up to, but not including, 1.
  Patience(Duration allowed, Clock::time_point now, std::function<double()> random)
      : allowed_(allowed), start_(now), random_(std::move(random)) {}

  // Says how many bytes are there. Those that have to be fetched again count once.
  void Received(uint64_t bytes) { received_ = std::max(received_, bytes); }

  // The time that is left; zero if it is up.
  Duration Left(Clock::time_point now) const;

  // How long to wait before the next attempt, at least as long as the server asks for, but never
  // longer than there is time left. Nothing if the time is up.
  std::optional<Duration> Wait(Clock::time_point now, Duration asked_for);

  // The slowest link that is waited for, in bytes per second.
  static constexpr uint64_t kSlowestLink = 16 << 10;

 private:
  const Duration allowed_;
  const Clock::time_point start_;
  const std::function<double()> random_;
  uint64_t received_ = 0;
  uint64_t received_at_fault_ = 0;
  int faults_ = 0;  // In a row, with few bytes in between.
};

}  // namespace ckptfs::http
