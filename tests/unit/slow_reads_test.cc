#include "fs/slow_reads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "parser/base/cancellation.h"
#include "parser/base/error.h"

namespace ckptfs {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

// How requests have ended.
struct Ends {
  std::atomic<int> read = 0;
  std::atomic<int> interrupted = 0;
  std::atomic<int> refused = 0;

  int all() const { return read + interrupted + refused; }
};

class Request final : public SlowReads::Request {
 public:
  Request(Ends& ends, std::function<void()> read, const std::atomic<bool>* is_cancelled = nullptr)
      : ends_(ends), read_(std::move(read)), is_cancelled_(is_cancelled) {}

  bool Run() noexcept override {
    try {
      read_();
      ++ends_.read;
    } catch (const Preempted&) {
      return false;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), EINTR);
      ++ends_.interrupted;
    }
    return true;
  }

  bool IsCancelled() const noexcept override { return is_cancelled_ != nullptr && *is_cancelled_; }

  void Refuse(int /*code*/) noexcept override { ++ends_.refused; }

 private:
  Ends& ends_;
  const std::function<void()> read_;
  const std::atomic<bool>* const is_cancelled_;
};

// A read that never ends, in steps after which another one can continue.
void ReadForEver() {
  while (true) {
    std::this_thread::sleep_for(milliseconds(1));
    Cancellation::CheckPreempted();
  }
}

bool Within(seconds most, const std::function<bool()>& is_so) {
  const auto end = steady_clock::now() + most;
  while (!is_so() && steady_clock::now() < end) std::this_thread::sleep_for(milliseconds(1));
  return is_so();
}

TEST(SlowReads, ReadsWhileManyOthersNeverEnd) {
  Ends ends;
  Ends bombs;
  SlowReads reads(2);
  for (int i = 0; i < 20; ++i) reads.Add(std::make_unique<Request>(bombs, ReadForEver));
  std::this_thread::sleep_for(milliseconds(100));
  for (int i = 0; i < 50; ++i) reads.Add(std::make_unique<Request>(ends, [] {}));
  EXPECT_TRUE(Within(seconds(20), [&] { return ends.read == 50; }));
  EXPECT_EQ(bombs.all(), 0);
}

TEST(SlowReads, GivesLongReadsTheirTurnsWhileNewOnesCome) {
  Ends ends;
  Ends others;
  std::atomic<bool> is_over = false;
  SlowReads reads(1);
  int steps = 0;
  reads.Add(std::make_unique<Request>(ends, [&] {
    while (++steps < 20) {
      std::this_thread::sleep_for(milliseconds(10));
      Cancellation::CheckPreempted();
    }
  }));
  std::jthread adding([&] {
    while (!is_over) {
      for (int i = 0; i < 3; ++i) {
        reads.Add(std::make_unique<Request>(others,
                                            [] { std::this_thread::sleep_for(milliseconds(1)); }));
      }
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  EXPECT_TRUE(Within(seconds(20), [&] { return ends.read == 1; }));
  is_over = true;
}

TEST(SlowReads, CancelsReadsWithoutAWaiterInAnyState) {
  Ends ends;
  std::atomic<bool> is_cancelled = false;
  SlowReads reads(2);
  for (int i = 0; i < 20; ++i) {
    reads.Add(std::make_unique<Request>(ends, ReadForEver, &is_cancelled));
  }
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(ends.all(), 0);
  is_cancelled = true;
  EXPECT_TRUE(Within(seconds(20), [&] { return ends.all() == 20; }));
  EXPECT_GT(ends.refused, 0);
}

TEST(SlowReads, AnswersAllWhenItStops) {
  Ends ends;
  SlowReads reads(2);
  for (int i = 0; i < 20; ++i) reads.Add(std::make_unique<Request>(ends, ReadForEver));
  EXPECT_FALSE(reads.AwaitEnd(steady_clock::now() + milliseconds(20)));
  reads.Stop();
  EXPECT_TRUE(reads.AwaitEnd(steady_clock::now() + seconds(20)));
  EXPECT_EQ(ends.all(), 20);
  reads.Add(std::make_unique<Request>(ends, ReadForEver));
  EXPECT_EQ(ends.all(), 21);
}

}  // namespace
}  // namespace ckptfs
