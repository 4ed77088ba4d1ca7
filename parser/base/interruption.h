// Whether the one who asked for bytes still waits for them.

#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

namespace ckptfs {

// Thrown by a read that has not come to its end, but whose thread is wanted by other reads. It is
// to be repeated, and goes on about where it was. No Error: nothing has failed.
class TurnOver {};

// As long as it lives, what takes long in this thread asks now and then whether its reader has
// given up, and then stops with Error(EINTR). Of several
// that nest in one thread, each may say so.
class Interruption {
 public:
  using IsGivenUp = std::function<bool()>;

  // Whether other reads want the thread, which works for its reader or, if `is_idle`, waits for
  // what another thread is doing.
  using IsTurnOver = std::function<bool(bool is_idle)>;

  // Both must outlive this, and not throw.
  explicit Interruption(const IsGivenUp& is_given_up, const IsTurnOver* is_turn_over = nullptr);
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;
  ~Interruption();

  // Whether the one who asked this thread has given up; no, if there is none.
  static bool IsGivenUpHere();

  // Throws Error(EINTR) if the one who asked this thread has given up.
  static void Check();

  // As Check; and throws TurnOver if others want the thread. To be called where what was done so
  // far is of use to who does the same again.
  static void CheckTurn(bool is_idle = false);

  // Waits for `changed` until `is_over`, both under `lock`, for something that another thread does.
  // Throws as CheckTurn does, without the lock.
  template <typename Predicate>
  static void Wait(std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
                   const Predicate& is_over);

 private:
  const IsGivenUp& is_given_up_;
  const IsTurnOver* const is_turn_over_;  // Null if the thread is not to be given away.
  const Interruption* const outer_;       // Null if there is none.
};

// For a loop of many short steps: checks at some of them.
class ManySteps {
 public:
  void Next() {
    constexpr unsigned kEvery = 64;
    if (++count_ % kEvery == 0) Interruption::Check();
  }

 private:
  unsigned count_ = 0;
};

template <typename Predicate>
void Interruption::Wait(std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
                        const Predicate& is_over) {
  // Longer than it takes to decode a panel, which is what is mostly waited for.
  constexpr std::chrono::milliseconds kLook(10);
  while (!changed.wait_for(lock, kLook, is_over)) {
    lock.unlock();
    CheckTurn(true);
    lock.lock();
  }
}

}  // namespace ckptfs
