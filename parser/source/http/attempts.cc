#include "parser/source/http/attempts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <ctime>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <utility>

#include "parser/base/cancellation.h"
#include "parser/source/http/fields.h"

namespace ckptfs::http {
namespace {

using std::chrono::milliseconds;

std::function<double()> Randomness() {
  return [engine = std::minstd_rand(std::random_device()())]() mutable {
    return std::uniform_real_distribution<double>(0, 1)(engine);
  };
}

bool IsCancelled(const std::stop_token& stop) {
  return stop.stop_requested() || Cancellation::IsRequested();
}

// Ends early if `stop` wants it, or a Cancellation.
void Sleep(milliseconds duration, const std::stop_token& stop) {
  constexpr milliseconds kLook(200);
  const auto end = std::chrono::steady_clock::now() + duration;
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  while (!IsCancelled(stop) && std::chrono::steady_clock::now() < end) {
    const auto until = std::min(end, std::chrono::steady_clock::now() + kLook);
    stopped.wait_until(lock, stop, until, [] { return false; });
  }
}

}  // namespace

void RequireNoFault(const Response& response) {
  const int status = response.status;
  constexpr int kNotImplemented = 501;
  constexpr int kHttpVersion = 505;
  const bool is_servers_fault =
      status >= 500 && status != kNotImplemented && status != kHttpVersion;
  const bool is_too_early = status == 408 || status == 425 || status == 429;
  if (!is_servers_fault && !is_too_early) return;
  const time_t now = ParseDate(response.Find("date")).value_or(std::time(nullptr));
  const auto wait = ParseRetryAfter(response.Find("retry-after"), now);
  throw Fault(EREMOTEIO, fmt::format("the server answers with status {}", status),
              wait.value_or(std::chrono::seconds(0)));
}

Attempts::Attempts(const SourceOptions& options, Phase phase, std::string subject, std::string part)
    : options_(options),
      phase_(phase),
      subject_(std::move(subject)),
      part_(std::move(part)),
      patience_(options.timeout, Patience::Clock::now(), Randomness()) {}

bool Attempts::MayPass(int code) const {
  if (code == ETIMEDOUT || code == ECONNRESET) return true;
  return phase_ == Phase::kReading &&
         (code == ECONNREFUSED || code == EHOSTUNREACH || code == EPROTO);
}

void Attempts::Run(const std::function<bool()>& attempt, const std::stop_token& stop) {
  constexpr int kMostAtOnce = 32;
  for (int again = 0; again < kMostAtOnce; ++again) {
    if (IsCancelled(stop)) Fail(ECANCELED, "the request was given up");
    try {
      if (attempt()) return;
      continue;
    } catch (const Fault& fault) {
      WaitAfter(fault, fault.wait(), stop);
    } catch (const Error& e) {
      if (!MayPass(e.code())) throw;
      WaitAfter(e, milliseconds(0), stop);
    }
    again = 0;
  }
  Fail(EREMOTEIO, "{}{}the server sends us to and fro", part_, part_.empty() ? "" : ": ");
}

void Attempts::WaitAfter(const Error& fault, milliseconds asked_for, const std::stop_token& stop) {
  if (IsCancelled(stop)) Fail(ECANCELED, "the request was given up");
  const std::string what =
      part_.empty() ? std::string(fault.what()) : fmt::format("{}: {}", part_, fault.what());
  const auto wait = patience_.Wait(Patience::Clock::now(), asked_for);
  if (!wait) {
    throw Error(fault.code() == ETIMEDOUT ? ETIMEDOUT : EREMOTEIO,
                fmt::format("{}; gave up after {} s", what, options_.timeout.count()));
  }
  if (options_.warn) options_.warn(fmt::format("{}: {}; trying again", subject_, what));
  Sleep(*wait, stop);
}

void Attempts::Limit(Request& request, uint64_t length) const {
  constexpr milliseconds kLongestStall(10'000);
  constexpr milliseconds kShortestStall(100);
  const milliseconds allowed(options_.timeout);
  request.stall = std::clamp(allowed / 3, kShortestStall, kLongestStall);
  // The last attempt, for which there may be no time left, gets as much as a silent server.
  const milliseconds left = std::max(patience_.Left(Patience::Clock::now()), request.stall);
  constexpr milliseconds kLongest = std::chrono::hours(24 * 7);
  const milliseconds for_length(length / Patience::kSlowestLink * 1000);
  request.deadline = std::min(left + std::min(for_length, kLongest), kLongest);
}

void Attempts::Received(uint64_t bytes) {
  patience_.Received(bytes);
  if (patience_.Left(Patience::Clock::now()) == milliseconds(0)) {
    throw Fault(ETIMEDOUT, fmt::format("too slow: {} bytes so far", bytes));
  }
}

}  // namespace ckptfs::http
