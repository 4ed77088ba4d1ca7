#include "tools/ckpt/parallel.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace ckptfs::ckpt {

void InParallel(size_t count, const std::function<void(size_t)>& work) {
  constexpr unsigned kMostThreads = 16;
  std::atomic<size_t> next = 0;
  const auto run = [&] {
    for (size_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::jthread> threads;
  const size_t processors = std::clamp(std::thread::hardware_concurrency(), 1U, kMostThreads);
  for (size_t i = 1; i < std::min(processors, count); ++i) threads.emplace_back(run);
  run();
}

}  // namespace ckptfs::ckpt
