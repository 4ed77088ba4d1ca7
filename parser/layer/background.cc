#include "parser/layer/background.h"

#include <system_error>
#include <utility>

namespace ckptfs {
namespace {

constexpr size_t kMostWaiting = 8;

}  // namespace

Background::~Background() {
  {
    const std::scoped_lock lock(mutex_);
    is_ending_ = true;
    waiting_.clear();
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Background::Do(uint64_t owner, Job job) {
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

void Background::Cancel(uint64_t owner) {
  std::unique_lock lock(mutex_);
  std::erase_if(waiting_, [owner](const Waiting& w) { return w.owner == owner; });
  changed_.wait(lock, [&] { return busy_for_ != owner; });
}

void Background::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return is_ending_ || !waiting_.empty(); });
    if (is_ending_) return;
    Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    busy_for_ = next.owner;
    lock.unlock();
    next.job();
    next.job = nullptr;
    lock.lock();
    busy_for_.reset();
    changed_.notify_all();
  }
}

}  // namespace ckptfs
