// The end of the program: exit codes, and limits for a parse beyond the budget.

#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <thread>

#include "fs/log.h"
#include "fs/options.h"
#include "parser/base/budget.h"
#include "parser/base/cancellation.h"
#include "parser/base/mutex.h"

namespace ckptfs {

// A step of the program.
enum class Step : uint8_t {
  kStart,
  kCommandLine,
  kMountpoint,
  kSecret,
  kOpen,
  kParse,
  kMount,
  kServe,
  kCommand,  // Of ckpt: reads of a checkpoint that has been parsed.
};

ExitCode ExitCodeOf(Step step, int error);

// Whether -o nofail covers this: the checkpoint is not available, because it does not exist, its
// server does not answer, or access is denied. A corrupt checkpoint and a wrong key are failures.
bool IsUnavailable(Step step, int error);

// Runs `body`, which keeps `step` up to date, and returns its exit status, or that of the error
// that it throws, which is logged. With `no_fail`, an unavailable checkpoint is a warning and 0.
int Guard(Log& log, const Step& step, bool no_fail, const std::function<int()>& body);

// Returns the time limit of parsing. It leaves time for further requests after one has timed out.
std::chrono::seconds ParseTimeOf(const Options& options, bool is_remote);

// Limits the time and memory of this process while an object of this class exists:
//
//   * The budget has a deadline. It is polled where work is counted, and where this thread waits
//     for a server: an Error reports the timeout.
//   * A little later `late` is called, in another thread. It should end the process, because the
//     code that runs then polls nothing.
//   * RLIMIT_DATA follows the limit of the budget at some distance, so that uncounted allocations
//     end in std::bad_alloc.
class ParseLimits {
 public:
  using Milliseconds = std::chrono::milliseconds;

  // The delay of `late` after the deadline, and the polling interval.
  struct Pace {
    Milliseconds grace = Milliseconds(5000);
    Milliseconds interval = Milliseconds(1000);
  };

  // `budget` must outlive this; parsing may take `allowance` and what Budget::SetTime adds.
  ParseLimits(Budget& budget, Milliseconds allowance, std::function<void()> late);
  ParseLimits(Budget& budget, Milliseconds allowance, std::function<void()> late, Pace pace);
  ParseLimits(const ParseLimits&) = delete;
  ParseLimits& operator=(const ParseLimits&) = delete;
  ~ParseLimits();

 private:
  void Watch(const std::stop_token& stop);

  Budget& budget_;
  const uint64_t data_limit_;  // As it was before, in bytes.
  const std::function<void()> late_;
  const Pace pace_;
  const Cancellation::IsCancelled is_cancelled_;
  const Cancellation cancellation_;
  Mutex mutex_;
  std::condition_variable_any stopped_;
  std::jthread watch_;  // Last: it uses the others.
};

}  // namespace ckptfs
