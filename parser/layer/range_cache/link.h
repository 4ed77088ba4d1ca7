// Measures the link to the servers of a cache: how many bytes keep it busy, and how many requests
// they answer at the same time.

#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "parser/io/prefetch.h"

namespace ckptfs {

// Uses no threads and does no I/O. Guarded by the lock of the cache.
class Link {
 public:
  using Clock = std::chrono::steady_clock;
  using Duration = Clock::duration;

  // Fewer connections than these wait for round trips for a considerable part of the time.
  static constexpr size_t kFewConnections = 2;

  // `most_fetches` limits the requests that run at the same time.
  explicit Link(size_t most_fetches);

  // Records the first byte of an answer, `latency` after its request.
  void RecordAnswer(Duration latency, Clock::time_point now);

  // Records how long a packet and its answer take; 0 if that is not known.
  void RecordRoundTrip(Duration round_trip) {
    if (round_trip > Duration(0)) round_trip_ = round_trip;
  }

  // Records how long the first bytes of an object took when it was opened.
  void RecordOpened(Duration latency) { opened_ = std::max(opened_, latency); }

  // Records that `requests` that run at the same time have been answered.
  void RecordServed(size_t requests) { served_ = std::max(served_, requests); }

  // Records that bytes have arrived.
  void RecordArrived(uint64_t bytes, Clock::time_point now);

  // Records that a reader waits although no request runs for it, since there are too many.
  void RecordQueued(Clock::time_point now) { queued_ = now; }

  // Records that the server has answered requests, but not these `unanswered` ones. If that is no
  // exception, it has no more workers for this client than it has answered requests at a time.
  void RecordUnanswered(size_t unanswered, Clock::time_point now);

  // Records that a request was repeated on a connection that had become idle. If many are, the
  // server has few workers.
  void RecordRepeated(Clock::time_point now);

  // How long an answer may take while others arrive.
  Duration answer_limit() const;

  // How long an answer may take before the request is repeated on a connection that has become
  // idle, and therefore has a worker of the server.
  Duration repeat_limit() const;

  // Whether a round trip costs more than further requests that save it.
  bool is_long() const;

  // How many bytes keep the link busy when they have been requested and have not arrived: bandwidth
  // x latency, some that wait in its queue, and what the slow start of all connections needs, but
  // no more than arrives in half a second or five round trips, or 4 MiB, and up to 8 MiB as long
  // as the rate grows. Many more would overflow the queue.
  uint64_t in_flight() const;

  // How many requests may run at the same time.
  size_t fetches() const { return fetches_; }

  // Whether the server does not answer as many requests at a time as are usual.
  bool has_few_workers() const { return fetches_ < usual_fetches_; }

  // How long a range may be, in bytes, for read-ahead. Between two ranges a connection waits for a
  // round trip: if there are few, ranges take up to half a second.
  uint64_t longest_range() const;

 private:
  const size_t most_fetches_;
  const size_t usual_fetches_;
  size_t fetches_;
  size_t served_ = 0;             // The most requests that were answered at the same time, ...
  size_t repeated_ = 0;           // Requests, ...
  size_t answers_ = 0;            // ... and answers, ...
  Clock::time_point counted_;     // ... for a second from this time on.
  Clock::time_point queued_;      // When a reader last waited for the end of another request.
  Clock::time_point unanswered_;  // When RecordUnanswered was last called.
  Clock::time_point retry_at_;    // When more requests are tried again after that.
  Duration retry_after_;

  Duration least_ = Duration::max();      // Latency of the last minute or two.
  Duration least_now_ = Duration::max();  // Of this minute.
  Clock::time_point minute_;              // When it began.
  Duration longest_{0};                   // Latency of the last few answers.
  Duration round_trip_{0};
  Duration opened_{0};  // Latency of opening, the longest.
  Duration usual_{0};   // Latency, a moving average.

  uint64_t total_ = 0;          // Bytes that have arrived.
  bool is_growing_ = true;      // Whether the rate was still growing when last measured.
  double bandwidth_ = 0;        // The highest of the last seconds, in bytes per second.
  uint64_t arrived_ = 0;        // Bytes, since ...
  Clock::time_point measured_;  // ... this time.
};

}  // namespace ckptfs
