// Slow reads, in threads of their own.
//
// libfuse answers each request in the thread that has received it. If these threads decoded, a few
// readers of large compressed members would block even a stat. So they hand such reads over.
//
// Slow reads take turns, since any number of them may wait and some may take hours. At the end of
// its turn, a read stops where the next turn can continue (Cancellation::CheckPreempted), and is
// repeated later. New reads come first. A preempted read waits behind those with less time so far,
// and its next turn is twice as long, so that the work lost between turns is bounded.

#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <stop_token>
#include <thread>
#include <vector>

#include "parser/base/mutex.h"

namespace ckptfs {

// Whether a pending signal of `thread`, which waits for a read, terminates or interrupts it. Call
// it after the kernel has reported a signal. Other signals, such as those of a timer, are ignored,
// because an error would kill a process that has mapped the file. True if the thread cannot be
// inspected.
bool HasTerminatingSignal(pid_t thread) noexcept;

// Like HasTerminatingSignal, without a report of the kernel, which sends no reports for read-ahead
// and direct I/O. False if the thread cannot be inspected.
bool HasVanished(pid_t thread) noexcept;

// Thread-safe.
class SlowReads {
 public:
  class Request {
   public:
    Request() = default;
    Request(const Request&) = delete;
    Request& operator=(const Request&) = delete;
    virtual ~Request() = default;

    // Reads and replies, with an error if that fails. Returns false, without a reply, if its turn
    // is over.
    virtual bool Run() noexcept = 0;

    // Whether the reader has cancelled. Polled some times a second.
    virtual bool IsCancelled() const noexcept = 0;

    // Replies with the error `code`.
    virtual void Refuse(int code) noexcept = 0;
  };

  // Reads with up to `most_threads` threads, at least one; the others are started on demand. Throws
  // std::system_error if no thread can be started.
  explicit SlowReads(size_t most_threads);
  SlowReads(const SlowReads&) = delete;
  SlowReads& operator=(const SlowReads&) = delete;
  ~SlowReads();  // Stops, and waits for the threads.

  // Queues `request`. Returns immediately.
  void Add(std::unique_ptr<Request> request);

  // Interrupts all reads, and refuses waiting and future ones with EIO.
  void Stop();

  // Returns whether all were answered by the deadline. Call it after Stop.
  bool AwaitEnd(std::chrono::steady_clock::time_point deadline);

 private:
  using Clock = std::chrono::steady_clock;

  struct Job {
    std::unique_ptr<Request> request;
    unsigned level = 0;   // The number of its turns so far, up to a limit.
    uint64_t number = 0;  // In the order of waiting.
  };

  using Queue = std::deque<Job>;

  static constexpr unsigned kNoLevel = std::numeric_limits<unsigned>::max();

  void Serve();
  bool Run(Job& job) const;
  void PollWaiting(const std::stop_token& stop);

  void StartThread() REQUIRES(mutex_);
  void Push(Job job) REQUIRES(mutex_);
  Job Pop() REQUIRES(mutex_);
  void RecordLevel() REQUIRES(mutex_);

  const size_t most_threads_;

  std::atomic<bool> is_stopped_ = false;
  std::atomic<unsigned> least_level_ = kNoLevel;  // Of those that wait.

  Mutex mutex_;                       // No request is run, polled or refused under it.
  std::condition_variable wanted_;    // A read waits, or Stop was called.
  std::condition_variable answered_;  // All have been.
  std::map<unsigned, Queue> waiting_ GUARDED_BY(mutex_);  // By level. No queue is empty.
  size_t unanswered_ GUARDED_BY(mutex_) = 0;  // Those that wait, and those that are being read.
  // Some waiting reads are removed temporarily.
  bool is_polling_ GUARDED_BY(mutex_) = false;
  uint64_t pushes_ GUARDED_BY(mutex_) = 0;
  uint64_t pops_ GUARDED_BY(mutex_) = 0;
  std::condition_variable_any has_waiting_;  // For the last thread.

  // The last members: they use the others.
  std::vector<std::jthread> threads_;  // That read; only grows.
  std::jthread poller_;
};

}  // namespace ckptfs
