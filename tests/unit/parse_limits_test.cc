// Limits that end a parse which would take too long.

#include "fs/guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "parser/base/budget.h"
#include "parser/base/cancellation.h"
#include "parser/base/error.h"

namespace ckptfs {
namespace {

using std::chrono::milliseconds;
using testing::ThrowsMessage;

constexpr ParseLimits::Pace kQuick = {.grace = milliseconds(20), .interval = milliseconds(5)};

uint64_t DataLimit() {
  rlimit limit = {};
  ::getrlimit(RLIMIT_DATA, &limit);
  return limit.rlim_cur;
}

TEST(ParseLimits, EndsWhatCountsItsWorkAtTheDeadline) {
  Budget budget;
  const ParseLimits limits(budget, milliseconds(10), [] {});
  const auto parse = [&] {
    while (true) budget.Work(1'000);
  };
  // The steps of small files, which take less time.
  EXPECT_NO_THROW(budget.Work(1'000));
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_THAT(parse, ThrowsMessage<Error>(
                         "parsing takes longer than 0 s, the limit for a checkpoint of this size"));
}

TEST(ParseLimits, InterruptsWaitingAtTheDeadline) {
  Budget budget;
  const ParseLimits limits(budget, milliseconds(10), [] {});
  EXPECT_FALSE(Cancellation::IsRequested());
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_TRUE(Cancellation::IsRequested());
}

TEST(ParseLimits, CallsForTheEndOfWhatPollsNothing) {
  Budget budget;
  std::atomic<bool> is_late = false;
  const ParseLimits limits(
      budget, milliseconds(1), [&] { is_late = true; }, kQuick);
  const auto end = Budget::Clock::now() + std::chrono::seconds(30);
  while (!is_late && Budget::Clock::now() < end) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_TRUE(is_late);
}

TEST(ParseLimits, LeavesWhatEndsInTimeAlone) {
  std::atomic<bool> is_late = false;
  {
    Budget budget;
    const ParseLimits limits(
        budget, std::chrono::hours(1), [&] { is_late = true; }, kQuick);
    std::this_thread::sleep_for(milliseconds(50));
    EXPECT_FALSE(Cancellation::IsRequested());
  }
  EXPECT_FALSE(is_late);
}

TEST(ParseLimits, DoesNotCountTheTimeOfTheUser) {
  Budget budget;
  std::atomic<bool> is_late = false;
  const ParseLimits limits(
      budget, milliseconds(200), [&] { is_late = true; }, kQuick);
  budget.StopTime();
  std::this_thread::sleep_for(milliseconds(400));
  EXPECT_FALSE(is_late);
  EXPECT_NO_THROW(budget.CheckTime());
}

TEST(ParseLimits, LimitsTheMemoryOfTheProcessDuringItsLife) {
  const uint64_t before = DataLimit();
  {
    Budget budget;
    const ParseLimits limits(budget, std::chrono::hours(1), [] {});
    const uint64_t small = DataLimit();
    EXPECT_LT(small, RLIM_INFINITY);  // By how much depends on what the process has: see ASan.
    budget.AddFile(uint64_t{1} << 26U, false);
    budget.Grow(uint64_t{1} << 26U);
    EXPECT_EQ(DataLimit() - small, 48 * (uint64_t{1} << 26U));
  }
  EXPECT_EQ(DataLimit(), before);
}

}  // namespace
}  // namespace ckptfs
