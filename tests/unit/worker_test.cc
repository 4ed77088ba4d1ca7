#include "parser/layer/block_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <span>
#include <stdexcept>
#include <thread>
#include <vector>

namespace ckptfs {
namespace {

using testing::ElementsAre;

constexpr uint64_t kOne = 1;
constexpr uint64_t kOther = 2;

// Keeps a worker busy until it is let go.
class Busy {
 public:
  Busy(Worker& worker, uint64_t owner) {
    worker.Do(owner, [this, may_end = may_end_.get_future().share()] {
      has_begun_.set_value();
      may_end.wait();
      has_ended = true;
    });
    has_begun_.get_future().wait();
  }

  void LetGo() { may_end_.set_value(); }

  std::atomic<bool> has_ended = false;

 private:
  std::promise<void> has_begun_;
  std::promise<void> may_end_;
};

// Waits until all that was asked for is done.
void Wait(Worker& worker) {
  std::promise<void> done;
  worker.Do(kOne, [&] { done.set_value(); });
  done.get_future().wait();
}

TEST(Worker, DoesJobsInTheirOrder) {
  Worker worker;
  std::vector<int> done;
  for (int i = 0; i < 4; ++i) worker.Do(kOne, [&done, i] { done.push_back(i); });
  Wait(worker);
  EXPECT_THAT(done, ElementsAre(0, 1, 2, 3));
}

TEST(Worker, DropsTheJobsOfAnOwnerThatLeaves) {
  Worker worker;
  Busy busy(worker, kOther);
  std::vector<uint64_t> done;
  worker.Do(kOne, [&] { done.push_back(kOne); });
  worker.Do(kOther, [&] { done.push_back(kOther); });
  worker.Cancel(kOne);
  busy.LetGo();
  Wait(worker);
  EXPECT_THAT(done, ElementsAre(kOther));
}

TEST(Worker, WaitsForTheRunningJobOfAnOwnerThatLeaves) {
  Worker worker;
  Busy busy(worker, kOne);
  std::promise<void> is_leaving;
  std::thread leaving([&] {
    is_leaving.set_value();
    worker.Cancel(kOne);
    EXPECT_TRUE(busy.has_ended);
  });
  is_leaving.get_future().wait();
  busy.LetGo();
  leaving.join();
}

TEST(Worker, DropsJobsBeyondItsCapacity) {
  Worker worker;
  Busy busy(worker, kOne);
  std::atomic<int> done = 0;
  for (int i = 0; i < 100; ++i) worker.Do(kOther, [&] { ++done; });
  worker.Cancel(kOther);
  for (int i = 0; i < 100; ++i) worker.Do(kOne, [&] { ++done; });
  busy.LetGo();
  while (done < 8) std::this_thread::yield();
  Wait(worker);
  EXPECT_EQ(done, 8);
}

TEST(Worker, CancellingDropsAJobThatWaitsBehindTheOneAtHand) {
  bool was_done = false;
  Worker worker;
  Busy busy(worker, kOne);
  // The job at hand ends when the other one, and with it what it owns, has been dropped.
  std::shared_ptr<void> dropped(nullptr, [&](void*) { busy.LetGo(); });
  worker.Do(kOne, [&was_done, dropped] { was_done = true; });
  dropped.reset();
  worker.Cancel(kOne);
  EXPECT_FALSE(was_done);
}

// A cache; one more block waits for its thread.
class BlocksPrefetched : public testing::Test {
 protected:
  static constexpr size_t kSize = 4096;

  BlockCache::Fill Filling(std::byte byte) {
    return [this, byte](std::span<std::byte> block) {
      ++fills_;
      std::ranges::fill(block, byte);
    };
  }

  std::byte ByteOf(uint64_t index) {
    std::byte byte{};
    EXPECT_TRUE(
        cache_.Read({.owner = kOne, .index = index}, kSize, 0, {&byte, 1}, Filling(std::byte{9})));
    return byte;
  }

  void WaitForBlocks() {
    std::promise<void> done;
    cache_.Prefetch({.owner = kOther, .index = 0}, kSize, Filling(std::byte{}), [&] {
      done.set_value();
      return false;
    });
    done.get_future().wait();
  }

  std::atomic<int> fills_ = 0;
  BlockCache cache_{2 * kSize};
};

TEST_F(BlocksPrefetched, AreThereForTheRead) {
  cache_.Prefetch({.owner = kOne, .index = 5}, kSize, Filling(std::byte{1}), [] { return true; });
  WaitForBlocks();
  EXPECT_EQ(ByteOf(5), std::byte{1});
  EXPECT_EQ(fills_, 1);
}

TEST_F(BlocksPrefetched, AreNotFilledIfTheirOwnerHasLeft) {
  cache_.Prefetch({.owner = kOne, .index = 5}, kSize, Filling(std::byte{1}), [] { return false; });
  WaitForBlocks();
  EXPECT_EQ(fills_, 0);
}

TEST_F(BlocksPrefetched, AreNotMadeTwice) {
  EXPECT_EQ(ByteOf(5), std::byte{9});
  cache_.Prefetch({.owner = kOne, .index = 5}, kSize, Filling(std::byte{1}), [] { return true; });
  WaitForBlocks();
  EXPECT_EQ(fills_, 1);
}

TEST_F(BlocksPrefetched, DoNotEvictUnreadBlocks) {
  for (const uint64_t index : {1U, 2U, 3U}) {
    cache_.Prefetch({.owner = kOne, .index = index}, kSize, Filling(std::byte{1}),
                    [] { return true; });
  }
  WaitForBlocks();
  EXPECT_EQ(fills_, 2);
  EXPECT_EQ(cache_.used(), 2 * kSize);
}

TEST_F(BlocksPrefetched, ThatFailAreMadeByTheRead) {
  cache_.Prefetch(
      {.owner = kOne, .index = 5}, kSize,
      [](std::span<std::byte>) { throw std::runtime_error("the disk is broken"); },
      [] { return true; });
  WaitForBlocks();
  EXPECT_EQ(cache_.used(), 0U);
  EXPECT_EQ(ByteOf(5), std::byte{9});
}

}  // namespace
}  // namespace ckptfs
