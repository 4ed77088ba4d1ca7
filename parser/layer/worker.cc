#include "parser/layer/worker.h"

#include <chrono>
#include <system_error>
#include <utility>

#include "parser/base/cancellation.h"

namespace ckptfs {
namespace {

constexpr size_t kMostWaiting = 8;

// For one job. What is prepared for the next read takes a hundredth of it.
constexpr std::chrono::seconds kMostTime(3);

}  // namespace

Worker::~Worker() {
  {
    const std::scoped_lock lock(mutex_);
    is_ending_ = is_interrupted_ = true;
    waiting_.clear();
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Worker::Do(uint64_t owner, Job job) {
  {
    const std::scoped_lock lock(mutex_);
    if (waiting_.size() == kMostWaiting) return;
    if (!thread_.joinable()) {
      try {
        thread_ = std::thread([this] { Run(); });
      } catch (const std::system_error&) {  // There may be no more threads. It is no loss.
        return;
      }
    }
    waiting_.push_back({.owner = owner, .job = std::move(job)});
  }
  changed_.notify_all();
}

void Worker::Cancel(uint64_t owner) {
  std::unique_lock lock(mutex_);
  std::erase_if(waiting_, [owner](const Waiting& w) { return w.owner == owner; });
  if (busy_for_ == owner) is_interrupted_ = true;
  changed_.wait(lock, [&] { return busy_for_ != owner; });
}

void Worker::RunJob(const Job& job) const {
  const auto end = std::chrono::steady_clock::now() + kMostTime;
  const Cancellation::IsCancelled is_cancelled = [&] {
    return is_interrupted_ || std::chrono::steady_clock::now() > end;
  };
  const Cancellation interruption(is_cancelled);
  job();
}

void Worker::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return is_ending_ || !waiting_.empty(); });
    if (is_ending_) return;
    Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    busy_for_ = next.owner;
    is_interrupted_ = false;
    lock.unlock();
    RunJob(next.job);
    next.job = nullptr;
    lock.lock();
    busy_for_.reset();
    changed_.notify_all();
  }
}

}  // namespace ckptfs
