// What still ends a parse that no budget ends.

#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

#include "parser/base/budget.h"
#include "parser/base/cancellation.h"

namespace ckptfs {

// As long as it lives, the time and the memory of this process are limited by a budget for
// parsing:
//
//   * The budget has a deadline. It is polled where work is counted, and where this thread waits
//     for a server: an Error says that the time is up.
//   * A little later `late` is called, in another thread. It should end the process: whatever runs
//     then polls nothing.
//   * RLIMIT_DATA follows the limit of the budget at some distance, so that what is not counted
//     ends in std::bad_alloc.
class ParseNet {
 public:
  using Milliseconds = std::chrono::milliseconds;

  // How long after the deadline `late` is called, and how often that is looked at.
  struct Pace {
    Milliseconds grace = Milliseconds(5000);
    Milliseconds interval = Milliseconds(1000);
  };

  // `budget` must outlive this; parsing may take `allowance` and what Budget::SetTime adds.
  ParseNet(Budget& budget, Milliseconds allowance, std::function<void()> late);
  ParseNet(Budget& budget, Milliseconds allowance, std::function<void()> late, Pace pace);
  ParseNet(const ParseNet&) = delete;
  ParseNet& operator=(const ParseNet&) = delete;
  ~ParseNet();

 private:
  void Watch(const std::stop_token& stop);

  Budget& budget_;
  const uint64_t data_limit_;  // As it was before, in bytes.
  const std::function<void()> late_;
  const Pace pace_;
  const Cancellation::IsCancelled is_cancelled_;
  const Cancellation interruption_;
  std::mutex mutex_;
  std::condition_variable_any stopped_;
  std::jthread watch_;  // Last: it uses the others.
};

}  // namespace ckptfs
