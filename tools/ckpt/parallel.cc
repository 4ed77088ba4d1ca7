#include "tools/ckpt/parallel.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "parser/base/error.h"
#include "parser/base/mutex.h"

namespace ckptfs::ckpt {
namespace {

// Hands out the numbers below `count`, until there are no more or work has failed.
class WorkQueue {
 public:
  WorkQueue(size_t count, const std::function<void(size_t)>& work) : count_(count), work_(work) {}

  void Run() {
    try {
      for (size_t i = next_++; i < count_; i = next_++) work_(i);
    } catch (const Error& error) {
      Stop(error);
    } catch (const std::bad_alloc&) {
      Stop({});
    }
  }

  // Call it after all threads have ended. Throws the first failure.
  void Check() {
    const MutexLock lock(mutex_);
    if (!has_failed_) return;
    if (error_) throw Error(*error_);
    throw std::bad_alloc();
  }

 private:
  void Stop(const std::optional<Error>& error) {
    next_ = count_;
    const MutexLock lock(mutex_);
    if (!has_failed_) error_ = error;
    has_failed_ = true;
  }

  const size_t count_;
  const std::function<void(size_t)>& work_;
  std::atomic<size_t> next_ = 0;
  Mutex mutex_;
  bool has_failed_ GUARDED_BY(mutex_) = false;
  std::optional<Error> error_ GUARDED_BY(mutex_);  // None if memory was exhausted.
};

}  // namespace

void InParallel(size_t count, const std::function<void(size_t)>& work) {
  constexpr unsigned kMostThreads = 16;
  const size_t processors = std::clamp(std::thread::hardware_concurrency(), 1U, kMostThreads);
  WorkQueue queue(count, work);
  {
    std::vector<std::jthread> threads;
    try {
      for (size_t i = 1; i < std::min(processors, count); ++i) {
        threads.emplace_back([&] { queue.Run(); });
      }
    } catch (const std::system_error&) {  // NOLINT(bugprone-empty-catch): fewer threads do it, too.
    }
    queue.Run();
  }
  queue.Check();
}

}  // namespace ckptfs::ckpt
