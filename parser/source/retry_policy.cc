#include "parser/source/retry_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <random>
#include <utility>

#include "parser/base/cancellation.h"

namespace ckptfs {
namespace {

using std::chrono::milliseconds;

// The seed takes 0.1 ms on some virtual machines, and few operations wait.
std::function<double()> UniformRandom() {
  return [] {
    thread_local std::minstd_rand engine(std::random_device{}());
    return std::uniform_real_distribution<double>(0, 1)(engine);
  };
}

bool IsCancelled(const std::stop_token& stop) {
  return stop.stop_requested() || Cancellation::IsRequested();
}

// Returns early if the operation is cancelled.
void Sleep(milliseconds duration, const std::stop_token& stop) {
  constexpr milliseconds kPollInterval(200);
  const auto end = std::chrono::steady_clock::now() + duration;
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  while (!IsCancelled(stop) && std::chrono::steady_clock::now() < end) {
    const auto until = std::min(end, std::chrono::steady_clock::now() + kPollInterval);
    stopped.wait_until(lock, stop, until, [] { return false; });
  }
}

}  // namespace

Backoff::Duration Backoff::Left(Clock::time_point now) const {
  const Duration earned(received_ * 1000 / kSlowestLink);
  const Clock::time_point end = start_ + allowed_ + earned;
  return now >= end ? Duration(0) : std::chrono::ceil<Duration>(end - now);
}

std::optional<Backoff::Duration> Backoff::Wait(Clock::time_point now, Duration requested) {
  constexpr Duration kFirst(100);
  constexpr Duration kLongest(10'000);
  constexpr uint64_t kProgress = 64 << 10;  // Bytes after which an error starts a new row.
  const Duration left = Left(now);
  if (left == Duration(0)) return std::nullopt;
  if (received_ - received_at_error_ >= kProgress) errors_ = 0;
  received_at_error_ = received_;
  const Duration most = std::min(kFirst * (1 << std::min(errors_++, 10)), kLongest);
  const auto drawn = std::chrono::duration_cast<Duration>(most * random_());
  return std::min(std::max(drawn, requested), left);
}

RetryPolicy::RetryPolicy(const SourceOptions& options, Phase phase, std::string subject,
                         std::string part)
    : options_(options),
      phase_(phase),
      subject_(std::move(subject)),
      part_(std::move(part)),
      backoff_(options.timeout, Backoff::Clock::now(), UniformRandom()) {}

bool RetryPolicy::IsTransient(int code) const {
  if (code == ETIMEDOUT || code == ECONNRESET) return true;
  return phase_ == Phase::kReading && (code == ECONNREFUSED || code == EHOSTUNREACH);
}

void RetryPolicy::Run(const std::function<bool()>& attempt, const std::stop_token& stop) {
  constexpr int kMostAtOnce = 32;
  for (int in_a_row = 0; in_a_row < kMostAtOnce; ++in_a_row) {
    if (IsCancelled(stop)) Fail(ECANCELED, "request cancelled");
    try {
      if (attempt()) return;
      continue;
    } catch (const TransientError& error) {
      WaitAfter(error, error.wait(), stop);
    } catch (const InvalidResponse& error) {
      CountInvalid(error, stop);
    } catch (const Error& error) {
      if (error.code() == EPROTO && phase_ == Phase::kReading) {
        CountInvalid(error, stop);
      } else if (IsTransient(error.code())) {
        if (error.code() == ETIMEDOUT) has_timed_out_ = true;
        WaitAfter(error, milliseconds(0), stop);
      } else {
        throw;
      }
    }
    in_a_row = 0;
  }
  Fail(EREMOTEIO, "{}{}too many redirects", part_, part_.empty() ? "" : ": ");
}

std::string RetryPolicy::MessageOf(const Error& error) const {
  return part_.empty() ? std::string(error.what()) : fmt::format("{}: {}", part_, error.what());
}

void RetryPolicy::CountInvalid(const Error& error, const std::stop_token& stop) {
  if (++invalid_ == kMostInvalid) {
    Fail(EREMOTEIO, "{}; gave up after {} attempts", MessageOf(error), kMostInvalid);
  }
  WaitAfter(error, milliseconds(0), stop);
}

void RetryPolicy::WaitAfter(const Error& error, milliseconds requested,
                            const std::stop_token& stop) {
  if (IsCancelled(stop)) Fail(ECANCELED, "request cancelled");
  const std::string message = MessageOf(error);
  const auto wait = backoff_.Wait(Backoff::Clock::now(), requested);
  if (!wait) {
    throw Error(error.code() == ETIMEDOUT ? ETIMEDOUT : EREMOTEIO,
                fmt::format("{}; gave up after {} s", message, options_.timeout.count()));
  }
  if (options_.retries) ++*options_.retries;
  if (options_.warn) options_.warn(fmt::format("{}: {}; retrying", subject_, message));
  Sleep(*wait, stop);
}

TimeLimits RetryPolicy::Limits(uint64_t length) const {
  constexpr milliseconds kLongestStall(10'000);
  constexpr milliseconds kShortestStall(100);
  constexpr milliseconds kLongest = std::chrono::hours(24 * 7);
  const milliseconds allowed(options_.timeout);
  const milliseconds stall = std::clamp(allowed / 3, kShortestStall, kLongestStall);
  // The last attempt, for which there may be no time left, gets as much as a silent server.
  const milliseconds left = std::max(backoff_.Left(Backoff::Clock::now()), stall);
  const milliseconds for_length(length / Backoff::kSlowestLink * 1000);
  return {.connect = stall,
          .first_byte = has_timed_out_ ? left : stall,
          .stall = stall,
          .deadline = std::min(left + std::min(for_length, kLongest), kLongest)};
}

void RetryPolicy::Received(uint64_t bytes) {
  backoff_.Received(bytes);
  invalid_ = 0;
  if (backoff_.Left(Backoff::Clock::now()) == milliseconds(0)) {
    throw TransientError(ETIMEDOUT, fmt::format("transfer too slow: {} bytes received", bytes));
  }
}

}  // namespace ckptfs
