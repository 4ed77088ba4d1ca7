// Retries of requests to remote sources, with exponential back-off.

#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "parser/base/error.h"
#include "parser/io/source_options.h"

namespace ckptfs {

// The time budget of one fetch, and the waits between its attempts.
//
// The budget is what the user allows, plus the time that the bytes received so far take on a slow
// link. A fetch that makes progress therefore never times out, however long it is, but a server
// that sends a byte now and then does.
//
// Waits grow from 100 ms to 10 s. Each is drawn at random between zero and that bound, so that many
// clients of a server that has failed do not return all at once. Belongs to one thread.
class Backoff {
 public:
  using Clock = std::chrono::steady_clock;
  using Duration = std::chrono::milliseconds;

  // `random` returns numbers in [0, 1).
  Backoff(Duration allowed, Clock::time_point now, std::function<double()> random)
      : allowed_(allowed), start_(now), random_(std::move(random)) {}

  // Records the number of bytes received in all attempts. Bytes that are fetched again count once.
  void Received(uint64_t bytes) { received_ = std::max(received_, bytes); }

  // Returns the time left; zero after the deadline.
  Duration Left(Clock::time_point now) const;

  // Returns how long to wait before the next attempt: at least `requested`, the wait that the
  // server requests, but never longer than the time left. Nothing after the deadline.
  std::optional<Duration> Wait(Clock::time_point now, Duration requested);

  // The slowest link that is supported, in bytes per second.
  static constexpr uint64_t kSlowestLink = 16 << 10;

 private:
  const Duration allowed_;
  const Clock::time_point start_;
  const std::function<double()> random_;
  uint64_t received_ = 0;
  uint64_t received_at_error_ = 0;
  int errors_ = 0;  // In a row, with few bytes in between.
};

// An error that may not occur again: the operation is retried.
class TransientError : public Error {
 public:
  // `wait` is the time that the server asks clients to wait (Retry-After).
  TransientError(int code, std::string_view message, Backoff::Duration wait = Backoff::Duration(0))
      : Error(code, message), wait_(wait) {}

  Backoff::Duration wait() const { return wait_; }

 private:
  Backoff::Duration wait_;
};

// A response that the protocol forbids, such as one with other bytes than were requested. Most
// servers repeat it, so it is retried a few times only: a cache on the way, or one of several
// servers behind one name, may have caused it. While reading, so is Error(EPROTO), a server that is
// not what it should be: of another protocol, or with an invalid certificate.
class InvalidResponse : public Error {
 public:
  explicit InvalidResponse(std::string_view message) : Error(EREMOTEIO, message) {}
};

// Time limits of one attempt.
struct TimeLimits {
  std::chrono::milliseconds connect{10'000};
  std::chrono::milliseconds first_byte{10'000};  // Until the response begins.
  std::chrono::milliseconds stall{10'000};       // Then, without data.
  std::chrono::milliseconds deadline{60'000};    // For all of it.
};

// Retries one operation until it succeeds, fails permanently or its time budget is used up. Belongs
// to one thread.
class RetryPolicy {
 public:
  // While a checkpoint is opened, errors that a mistyped name causes (connection refused, host not
  // found, invalid certificate) are permanent; later they are retried.
  enum class Phase : uint8_t { kOpening, kReading };

  // `subject` and `part` name the operation in messages: "https://host/m.pth", "bytes 0 to 99".
  // `part` may be empty. `options` must outlive this.
  RetryPolicy(const SourceOptions& options, Phase phase, std::string subject, std::string part);

  // Calls `attempt` until it returns true. Waits before the next call if it throws a transient
  // error, InvalidResponse or, while reading, Error(EPROTO); calls it again at once, but a limited
  // number of times, if it returns false. Throws permanent errors; ECANCELED soon after `stop` is
  // requested or the operation is cancelled; after the deadline, or kMostInvalid errors of the
  // latter two kinds without progress, an Error with the message of the last error: ETIMEDOUT if
  // that was its code, else EREMOTEIO.
  void Run(const std::function<bool()>& attempt, const std::stop_token& stop);

  // Returns the limits of the next attempt, which is to receive `length` bytes. The first attempt
  // detects a lost connection soon; once an attempt has timed out, the server may be slow, and the
  // next one waits for its first byte as long as there is time.
  TimeLimits Limits(uint64_t length) const;

  // Records the number of bytes received in all attempts. Throws TransientError after the deadline.
  void Received(uint64_t bytes);

  // If one of three servers is faulty, one of 243 requests fails.
  static constexpr int kMostInvalid = 5;

 private:
  bool IsTransient(int code) const;
  std::string MessageOf(const Error& error) const;
  void CountInvalid(const Error& error, const std::stop_token& stop);
  void WaitAfter(const Error& error, Backoff::Duration requested, const std::stop_token& stop);

  const SourceOptions& options_;
  const Phase phase_;
  const std::string subject_;
  const std::string part_;
  Backoff backoff_;
  bool has_timed_out_ = false;
  int invalid_ = 0;  // Errors of an invalid server since bytes were last received.
};

}  // namespace ckptfs
