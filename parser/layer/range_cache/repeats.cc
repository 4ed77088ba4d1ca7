// The part of the scheduler that is for servers with few workers, such as prefork ones: a worker
// serves one connection until it is closed, and other connections are not answered. Their requests
// are repeated on connections that have a worker.

#include <algorithm>
#include <utility>

#include "parser/layer/range_cache/scheduler.h"

namespace ckptfs {
namespace {

// Whether a request has been sent and its response has not begun.
bool IsUnanswered(const RangeFetch& fetch) {
  return !fetch.is_answered && fetch.started != Scheduler::Clock::time_point() &&
         !fetch.stop.stop_requested();
}

}  // namespace

// Stops a fetch whose blocks are still wanted.
void Scheduler::Repeat(RangeFetch& fetch) {
  fetch.is_repeated = true;
  fetch.stop.request_stop();
}

// Stops fetches whose request waits for a worker of the server, while others have been answered:
// one of the connections that have a worker fetches these blocks sooner.
void Scheduler::StopUnanswered(Clock::time_point now) {
  // Requests that are sent so soon after each other may be answered in any order.
  constexpr std::chrono::milliseconds kTogether{20};
  size_t unanswered = 0;
  for (RangeFetch* fetch : fetches_) {
    if (!IsUnanswered(*fetch) || fetch->started > answered_ + kTogether ||
        now - fetch->started < link_.answer_limit()) {
      continue;
    }
    Repeat(*fetch);
    ++unanswered;
  }
  if (unanswered > 0) link_.RecordUnanswered(unanswered, now);
}

// Stops a fetch that is not answered for long, so that it is begun again on a connection that has
// become idle: the server may have a worker for each of a few connections only, which waits there
// for the next request. If the server is merely slow, that costs little, since a response must end
// first. Returns whether stopped fetches will take all idle connections.
bool Scheduler::MoveUnanswered(bool is_for_reader, Clock::time_point now) {
  const auto stopped =
      std::ranges::count_if(fetches_, [](const RangeFetch* fetch) { return fetch->is_repeated; });
  if (idle_ <= static_cast<size_t>(stopped)) return idle_ > 0;
  const auto found = std::ranges::find_if(fetches_, [&](const RangeFetch* fetch) {
    return IsUnanswered(*fetch) && now - fetch->started >= link_.repeat_limit() &&
           (!is_for_reader || HasWaiter(*fetch));
  });
  if (found == fetches_.end()) return false;
  Repeat(**found);
  link_.RecordRepeated(now);
  return idle_ == static_cast<size_t>(stopped) + 1;
}

// Has the blocks of a stopped fetch fetched again.
void Scheduler::AddRepeated(const RangeFetch& fetch) {
  const uint64_t begin = fetch.first_block;
  repeated_.push_back({fetch.object, begin, begin + fetch.frames.size(), fetch.stream});
  std::ranges::sort(repeated_, {}, [](const RepeatedRange& range) {
    return std::pair(range.object, range.block);
  });
}

std::unique_ptr<RangeFetch> Scheduler::TakeRepeated(Clock::time_point now) {
  while (!repeated_.empty()) {
    RepeatedRange& next = repeated_.front();
    // One range is better than several for few connections.
    while (link_.fetches() <= Link::kFewConnections && repeated_.size() > 1 &&
           repeated_[1].object == next.object && repeated_[1].block <= next.end_block) {
      next.end_block = std::max(next.end_block, repeated_[1].end_block);
      repeated_.erase(repeated_.begin() + 1);
    }
    while (next.block < next.end_block && IsPresent({next.object, next.block})) ++next.block;
    auto fetch = next.block == next.end_block
                     ? nullptr
                     : Begin(next.object, next.block, next.end_block, Frames::Need::kAhead, now);
    if (fetch == nullptr) {  // Without memory, waiters come first.
      repeated_.pop_front();
      continue;
    }
    fetch->stream = next.stream;
    fetch->is_awaited = HasWaiter(*fetch);
    next.block += fetch->frames.size();
    return fetch;
  }
  return nullptr;
}

Scheduler::Clock::duration Scheduler::poll() const {
  constexpr std::chrono::milliseconds kUsual{50};  // For the cancellation of the readers.
  constexpr std::chrono::milliseconds kShort{10};
  // Many waiters poll often enough together.
  const bool is_short =
      waiters_.size() <= kUsualConnections &&
      std::ranges::any_of(fetches_, [](const RangeFetch* fetch) { return IsUnanswered(*fetch); });
  return is_short ? kShort : kUsual;
}

}  // namespace ckptfs
