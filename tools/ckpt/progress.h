// How far a long command is, on a terminal.

#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "parser/base/mutex.h"

namespace ckptfs::ckpt {

// A line on standard error with share, rate and remaining time, if that is a terminal; it is erased
// at the end. Any thread may call Add.
class Progress {
 public:
  // `total` is in bytes.
  explicit Progress(uint64_t total);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  void Add(uint64_t bytes);

 private:
  using Clock = std::chrono::steady_clock;

  const uint64_t total_;
  const bool is_shown_;
  const Clock::time_point start_ = Clock::now();
  std::atomic<uint64_t> done_ = 0;
  Mutex mutex_;
  Clock::time_point drawn_ GUARDED_BY(mutex_);
};

}  // namespace ckptfs::ckpt
