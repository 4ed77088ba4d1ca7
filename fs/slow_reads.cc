#include "fs/slow_reads.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>

#include "parser/base/cancellation.h"
#include "parser/base/fd.h"
#include "parser/base/text.h"

namespace ckptfs {
namespace {

constexpr uint64_t MaskOf(std::initializer_list<int> signals) {
  uint64_t mask = 0;
  for (const int signal : signals) mask |= uint64_t{1} << static_cast<unsigned>(signal - 1);
  return mask;
}

// Signals that users send to stop a program, whether it has a handler or not.
constexpr uint64_t kWanted = MaskOf({SIGHUP, SIGINT, SIGQUIT, SIGKILL, SIGTERM});

// Signals that do not end a process by default.
constexpr uint64_t kHarmless =
    MaskOf({SIGCHLD, SIGCONT, SIGURG, SIGWINCH, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU});

// The status of a thread in /proc (proc(5)). Allocates nothing, so that it cannot throw.
class Status {
 public:
  explicit Status(pid_t thread) noexcept {
    std::array<char, 32> path = {};
    std::snprintf(path.data(), path.size(), "/proc/%d/status", static_cast<int>(thread));
    const Fd file(::open(path.data(), O_RDONLY | O_CLOEXEC));
    if (file.number() < 0) return;
    const ssize_t n = ::read(file.number(), buffer_.data(), buffer_.size());
    if (n > 0) text_ = {buffer_.data(), static_cast<size_t>(n)};
  }

  bool is_known() const { return !text_.empty(); }

  // Returns the rest of the line after "\nNAME:\t"; empty without such a line.
  std::string_view Field(std::string_view name) const {
    for (size_t at = text_.find(name); at != std::string_view::npos;
         at = text_.find(name, at + 1)) {
      std::string_view rest = text_.substr(at + name.size());
      if (at == 0 || text_[at - 1] != '\n' || !rest.starts_with(":\t")) continue;
      rest.remove_prefix(2);
      return rest.substr(0, rest.find('\n'));
    }
    return {};
  }

  bool has_ended() const {
    const std::string_view state = Field("State");
    return state.starts_with('Z') || state.starts_with('X');
  }

  // Whether a pending signal terminates it, or is one that users send to stop a program.
  bool has_wish_to_end() const {
    const uint64_t pending = (Mask("SigPnd") | Mask("ShdPnd")) & ~Mask("SigBlk");
    const uint64_t ignored = Mask("SigIgn");
    const uint64_t deadly = ~(ignored | Mask("SigCgt") | kHarmless);
    return (pending & ((kWanted & ~ignored) | deadly)) != 0;
  }

 private:
  uint64_t Mask(std::string_view name) const {
    return ParseNumber<uint64_t>(Field(name), 16).value_or(0);
  }

  std::array<char, 8192> buffer_ = {};
  std::string_view text_;
};

}  // namespace

bool HasTerminatingSignal(pid_t thread) noexcept {
  const Status status(thread);
  if (!status.is_known() || status.has_ended()) return true;
  return status.has_wish_to_end();
}

bool HasVanished(pid_t thread) noexcept {
  if (thread <= 0) return false;  // It is in another PID namespace.
  if (::kill(thread, 0) < 0 && errno == ESRCH) return true;
  const Status status(thread);
  return status.has_ended() || status.has_wish_to_end();
}

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstTurn(50);
constexpr unsigned kMostLevel = 16;

// How often running and waiting reads are polled for cancellation.
constexpr milliseconds kPollInterval(50);
constexpr milliseconds kWaitingPollInterval(200);

// One turn of so many goes to the read that has waited longest, even if it had more turns than
// others: it would starve while new reads arrive.
constexpr uint64_t kOldestEvery = 4;

}  // namespace

SlowReads::SlowReads(size_t most_threads) : most_threads_(most_threads) {
  threads_.reserve(most_threads);
  threads_.emplace_back([this] { Serve(); });
  try {
    poller_ = std::jthread([this](const std::stop_token& stop) { PollWaiting(stop); });
  } catch (const std::system_error&) {
    Stop();  // Else the first thread, which the destructor joins, would never end.
    throw;
  }
}

SlowReads::~SlowReads() { Stop(); }

void SlowReads::Add(std::unique_ptr<Request> request) {
  if (is_stopped_) return request->Refuse(EIO);
  {
    const MutexLock lock(mutex_);
    Push({.request = std::move(request)});
    ++unanswered_;
    if (threads_.size() < std::min(unanswered_, most_threads_)) StartThread();
  }
  wanted_.notify_one();
}

void SlowReads::StartThread() try {
  threads_.emplace_back([this] { Serve(); });
} catch (const std::system_error&) {
  // No more threads are available: the existing ones serve the request.
}

void SlowReads::Stop() {
  is_stopped_ = true;
  {
    const MutexLock lock(mutex_);  // Else a thread could miss the notification.
  }
  wanted_.notify_all();
}

bool SlowReads::AwaitEnd(Clock::time_point deadline) {
  MutexLock lock(mutex_);
  return answered_.wait_until(lock, deadline, [&]() REQUIRES(mutex_) { return unanswered_ == 0; });
}

void SlowReads::Serve() {
  MutexLock lock(mutex_);
  while (true) {
    wanted_.wait(lock, [&]() REQUIRES(mutex_) {
      return !waiting_.empty() || (is_stopped_ && !is_polling_);
    });
    if (waiting_.empty()) return;
    Job job = Pop();
    lock.unlock();
    const bool is_answered = Run(job);
    if (is_answered) job.request.reset();
    lock.lock();
    if (!is_answered) {
      Push(std::move(job));
    } else if (--unanswered_ == 0) {
      answered_.notify_all();
    }
  }
}

// Returns whether the request was answered.
bool SlowReads::Run(Job& job) const {
  if (is_stopped_) {
    job.request->Refuse(EIO);
    return true;
  }
  bool is_cancelled = false;
  bool is_turn_used = false;
  const auto begin = Clock::now();
  auto next_poll = begin + kPollInterval;
  const Cancellation::IsCancelled look = [&] {
    if (is_cancelled || is_stopped_) return true;
    if (const auto now = Clock::now(); now >= next_poll) {
      next_poll = now + kPollInterval;
      is_cancelled = job.request->IsCancelled();
    }
    return is_cancelled;
  };
  const Cancellation::IsPreempted is_preempted = [&](bool is_idle) {
    const unsigned least = least_level_;
    if (least == kNoLevel) return false;
    is_turn_used = is_idle || Clock::now() - begin > kFirstTurn * (1U << job.level);
    return is_turn_used || least < job.level;
  };
  const Cancellation interruption(look, &is_preempted);
  if (job.request->Run()) return true;
  if (is_turn_used) job.level = std::min(job.level + 1, kMostLevel);
  return false;
}

// Refuses waiting reads whose readers have cancelled. Removes the reads from the queues meanwhile.
void SlowReads::PollWaiting(const std::stop_token& stop) {
  const auto is_in_vain = [](Job& job) {
    if (!job.request->IsCancelled()) return false;
    job.request->Refuse(EINTR);
    return true;
  };
  MutexLock lock(mutex_);
  // An idle mount must not wake up: there is nothing to poll until a read waits.
  while (has_waiting_.wait(lock, stop, [&]() REQUIRES(mutex_) { return !waiting_.empty(); })) {
    has_waiting_.wait_for(lock, stop, kWaitingPollInterval, [] { return false; });
    if (stop.stop_requested()) return;
    for (unsigned level = 0; level <= kMostLevel; ++level) {
      auto found = waiting_.extract(level);
      if (found.empty()) continue;
      RecordLevel();
      Queue& queue = found.mapped();
      is_polling_ = true;
      lock.unlock();
      const size_t count = std::erase_if(queue, is_in_vain);
      lock.lock();
      is_polling_ = false;
      if (unanswered_ -= count; unanswered_ == 0) answered_.notify_all();
      if (!queue.empty()) {
        Queue& newer = waiting_[level];
        newer.insert(newer.begin(), std::make_move_iterator(queue.begin()),
                     std::make_move_iterator(queue.end()));
        RecordLevel();
      }
      wanted_.notify_all();
    }
  }
}

void SlowReads::Push(Job job) {
  if (waiting_.empty()) has_waiting_.notify_one();
  job.number = ++pushes_;
  waiting_[job.level].push_back(std::move(job));
  RecordLevel();
}

SlowReads::Job SlowReads::Pop() {
  auto queue = waiting_.begin();
  if (++pops_ % kOldestEvery == 0 && waiting_.size() > 1) {
    const auto front = [](const auto& level) { return level.second.front().number; };
    queue = std::ranges::min_element(std::next(queue), waiting_.end(), {}, front);
  }
  Job job = std::move(queue->second.front());
  queue->second.pop_front();
  if (queue->second.empty()) waiting_.erase(queue);
  RecordLevel();
  return job;
}

void SlowReads::RecordLevel() {
  least_level_ = waiting_.empty() ? kNoLevel : waiting_.begin()->first;
}

}  // namespace ckptfs
