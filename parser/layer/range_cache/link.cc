#include "parser/layer/range_cache/link.h"

#include <algorithm>
#include <utility>

namespace ckptfs {
namespace {

using std::chrono::duration;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Further requests per answer: after the first eight answers, 32 readers are served at a time.
constexpr size_t kMorePerAnswer = 3;

constexpr seconds kFirstRetry{2};
constexpr seconds kLastRetry{60};

}  // namespace

Link::Link(size_t most_fetches)
    : most_fetches_(most_fetches),
      usual_fetches_(std::min(kUsualConnections, most_fetches)),
      fetches_(usual_fetches_),
      retry_after_(kFirstRetry) {}

void Link::RecordAnswer(Duration latency, Clock::time_point now) {
  if (now - minute_ > seconds(60)) {
    least_ = least_now_;
    least_now_ = Duration::max();
    minute_ = now;
  }
  least_now_ = std::min(least_now_, latency);
  least_ = std::min(least_, latency);
  // A request that waited for a worker of the server is no measure.
  const bool is_first = usual_ == Duration(0);
  const Duration counted =
      has_few_workers() && !is_first ? std::min(latency, answer_limit()) : latency;
  longest_ = std::max(counted, longest_ * 7 / 8);
  usual_ = is_first ? counted : (7 * usual_ + counted) / 8;
  if (now - counted_ > seconds(1)) {
    repeated_ = answers_ = 0;
    counted_ = now;
  }
  ++answers_;

  if (has_few_workers()) {
    if (now < retry_at_) return;
    ++fetches_;
    retry_at_ = now + retry_after_;
    return;
  }
  // More requests for readers that wait, as long as each is answered as fast as if it were alone.
  if (latency > 4 * least_ + milliseconds(100)) {
    fetches_ = std::max(usual_fetches_, fetches_ - fetches_ / 8);
  } else if (now - queued_ < seconds(1) && now >= retry_at_ &&
             latency <= 2 * least_ + milliseconds(10)) {
    fetches_ = std::min(fetches_ + kMorePerAnswer, most_fetches_);
  }
}

void Link::RecordArrived(uint64_t bytes, Clock::time_point now) {
  arrived_ += bytes;
  total_ += bytes;
  const Duration elapsed = now - measured_;
  // Bytes come in bursts: a short interval would measure these.
  const Duration interval = std::clamp<Duration>(usual_, milliseconds(200), seconds(1));
  if (elapsed < interval) return;
  const double rate = static_cast<double>(arrived_) / duration<double>(elapsed).count();
  is_growing_ = rate > bandwidth_ * 1.25;
  bandwidth_ = std::max(rate, bandwidth_ * 0.98);
  arrived_ = 0;
  measured_ = now;
}

void Link::RecordRepeated(Clock::time_point now) {
  constexpr size_t kFew = 3;
  if (++repeated_ < kFew || 8 * repeated_ < answers_) return;
  RecordUnanswered(repeated_, now);
  repeated_ = 0;
}

void Link::RecordUnanswered(size_t unanswered, Clock::time_point now) {
  const bool is_exception = unanswered == 1 && now - unanswered_ > seconds(10);
  unanswered_ = now;
  const size_t served = std::exchange(served_, 0);
  if (is_exception) return;
  fetches_ = std::clamp<size_t>(served, 1, fetches_);
  if (now < retry_at_) return;
  retry_at_ = now + retry_after_;
  retry_after_ = std::min<Duration>(2 * retry_after_, kLastRetry);
}

Link::Duration Link::answer_limit() const {
  return std::max<Duration>(4 * usual_ + milliseconds(50), 2 * longest_);
}

Link::Duration Link::repeat_limit() const {
  const Duration usual = usual_ == Duration(0) ? std::max(opened_, round_trip_) : usual_;
  return std::max<Duration>(2 * usual + milliseconds(20), longest_);
}

uint64_t Link::longest_range() const {
  constexpr uint64_t kUsual = 8 << 20;
  constexpr uint64_t kMost = 64 << 20;
  if (fetches_ > kFewConnections) return kUsual;
  return std::clamp(static_cast<uint64_t>(bandwidth_ / 2) / fetches_, kUsual, kMost);
}

bool Link::is_long() const { return round_trip_ >= kLongRoundTrip; }

uint64_t Link::in_flight() const {
  constexpr double kMargin = 1.2;
  constexpr double kQueued = 3 << 20;
  constexpr double kLeast = 4 << 20;
  constexpr double kMostFirst = 8 << 20;
  constexpr double kSlowStart = 6 << 20;
  constexpr double kUsualBandwidth = 100e6;  // Bytes per second.
  constexpr double kMostQueued = 0.5;        // In seconds.
  constexpr double kSlowStartRoundTrips = 5;
  // While connections are in slow start, their rate says little.
  const double least =
      is_growing_ ? std::min(kLeast + 2 * static_cast<double>(total_), kMostFirst) : kLeast;
  if (bandwidth_ == 0) return static_cast<uint64_t>(least);
  const double latency = duration<double>(least_).count();
  const double wanted =
      std::max(kMargin * bandwidth_ * latency + kQueued, kUsualBandwidth * latency + kSlowStart);
  // In slow start, the rate grows several times before it is measured.
  const double round_trip = duration<double>(round_trip_).count();
  const double queued = bandwidth_ * std::max(kMostQueued, kSlowStartRoundTrips * round_trip);
  return static_cast<uint64_t>(std::min(wanted, std::max(queued, least)));
}

}  // namespace ckptfs
