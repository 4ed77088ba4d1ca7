// Work that is done beside the reads.

#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

namespace ckptfs {

// Does jobs one after another in a thread of its own, which it starts with the first one. What it
// is given should be of use soon, and no loss if it is not done at all: a job that takes seconds is
// interrupted (cancellation.h). Thread-safe.
class Worker {
 public:
  using Job = std::function<void()>;  // Must not throw.

  Worker() = default;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker();  // Interrupts the job at hand, waits for it, and drops all others.

  // Has `job` done, unless many are waiting already.
  void Do(uint64_t owner, Job job);

  // Drops the jobs of `owner`, and waits for the one at hand if it is his, which it interrupts.
  void Cancel(uint64_t owner);

 private:
  struct Waiting {
    uint64_t owner = 0;
    Job job;
  };

  void RunJob(const Job& job) const;
  void Run();

  std::mutex mutex_;  // Guards all below but the thread; no job is done under it.
  std::condition_variable changed_;
  std::deque<Waiting> waiting_;
  std::optional<uint64_t> busy_for_;  // The owner of the job at hand.
  bool is_ending_ = false;
  std::atomic<bool> is_interrupted_ = false;  // The job at hand.
  std::thread thread_;  // Started and joined under no lock but that of the first Do.
};

}  // namespace ckptfs
