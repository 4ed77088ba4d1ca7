// Cancellation of a read whose caller has left, polled by the thread that serves it.

#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

namespace ckptfs {

// Thrown by an unfinished read whose thread other reads need. The read is repeated and continues
// about where it stopped. Not an Error: nothing has failed.
class Preempted {};

// While an object of this class exists, long operations of this thread poll whether their caller
// has cancelled, and then throw Error(EINTR). Objects nest; any of them can cancel. The innermost
// one with `is_preempted` decides about preemption.
class Cancellation {
 public:
  using IsCancelled = std::function<bool()>;

  // Whether other reads need the thread. `is_idle`: it waits for the result of another thread.
  using IsPreempted = std::function<bool(bool is_idle)>;

  // Both must outlive this and must not throw.
  explicit Cancellation(const IsCancelled& is_cancelled, const IsPreempted* is_preempted = nullptr);
  Cancellation(const Cancellation&) = delete;
  Cancellation& operator=(const Cancellation&) = delete;
  ~Cancellation();

  // Whether the caller of this thread has cancelled; false without a Cancellation.
  static bool IsRequested();

  // Throws Error(EINTR) if the caller of this thread has cancelled.
  static void Check();

  // Like Check, but also throws Preempted if other reads need the thread. Call it only where a
  // repeated read reuses the work done so far.
  static void CheckPreempted(bool is_idle = false);

  // Waits on `changed` for `is_over`, both under `lock`. Throws as CheckPreempted does, with `lock`
  // released.
  template <typename Predicate>
  static void Wait(std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
                   const Predicate& is_over);

 private:
  const IsCancelled& is_cancelled_;
  const IsPreempted* const is_preempted_;  // Null if the thread cannot be preempted.
  const Cancellation* const outer_;        // May be null.
};

// Polls for cancellation in a loop of short steps: at every 64th.
class PeriodicCheck {
 public:
  void Next() {
    constexpr unsigned kEvery = 64;
    if (++count_ % kEvery == 0) Cancellation::Check();
  }

 private:
  unsigned count_ = 0;
};

template <typename Predicate>
void Cancellation::Wait(std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
                        const Predicate& is_over) {
  // Longer than most waits, which are for the decompression of one block.
  constexpr std::chrono::milliseconds kPollInterval(10);
  while (!changed.wait_for(lock, kPollInterval, is_over)) {
    lock.unlock();
    CheckPreempted(true);
    lock.lock();
  }
}

}  // namespace ckptfs
