#include "fs/parse_net.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <utility>

namespace ckptfs {
namespace {

// Bytes of memory that this process can write and shares with nobody; 0 if that is not known.
uint64_t DataSize() {
  std::ifstream file("/proc/self/statm");
  uint64_t pages = 0;
  constexpr int kData = 6;  // The sixth number.
  for (int i = 0; i < kData; ++i) file >> pages;
  return file ? pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) : 0;
}

uint64_t DataLimit() {
  rlimit limit = {};
  return ::getrlimit(RLIMIT_DATA, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

void SetDataLimit(uint64_t bytes) {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_DATA, &limit) != 0) return;
  limit.rlim_cur = bytes;
  ::setrlimit(RLIMIT_DATA, &limit);
}

// Besides what the budget counts: stacks of threads, buffers, what libraries allocate.
constexpr uint64_t kOthers = uint64_t{768} << 20;
constexpr uint64_t kPerCounted = 3;

}  // namespace

ParseNet::ParseNet(Budget& budget, Milliseconds allowance, std::function<void()> late)
    : ParseNet(budget, allowance, std::move(late), Pace()) {}

ParseNet::ParseNet(Budget& budget, Milliseconds allowance, std::function<void()> late, Pace pace)
    : budget_(budget),
      data_limit_(DataLimit()),
      late_(std::move(late)),
      pace_(pace),
      is_cancelled_([&budget] { return Budget::Clock::now() >= budget.deadline(); }),
      interruption_(is_cancelled_) {
  budget_.SetTime(allowance);
  if (const uint64_t size = DataSize(); size > 0) {
    const auto follow = [this, size](uint64_t limit) {
      SetDataLimit(std::min(data_limit_, size + kOthers + kPerCounted * limit));
    };
    follow(budget_.limit());
    budget_.OnGrowth(follow);
  }
  watch_ = std::jthread([this](const std::stop_token& stop) { Watch(stop); });
}

ParseNet::~ParseNet() {
  budget_.OnGrowth({});
  SetDataLimit(data_limit_);
}

// The deadline may move, so it is looked at again and again.
void ParseNet::Watch(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, stop, pace_.interval, [&] { return stop.stop_requested(); })) {
    if (Budget::Clock::now() - pace_.grace >= budget_.deadline()) return late_();
  }
}

}  // namespace ckptfs
