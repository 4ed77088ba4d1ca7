#include "parser/layer/background.h"

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

#include "parser/layer/panel_cache.h"

namespace ckptfs {
namespace {

using testing::ElementsAre;

constexpr uint64_t kOne = 1;
constexpr uint64_t kOther = 2;

// Keeps a background busy until it is let go.
class Busy {
 public:
  Busy(Background& background, uint64_t owner) {
    background.Do(owner, [this, may_end = may_end_.get_future().share()] {
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
void Wait(Background& background) {
  std::promise<void> done;
  background.Do(kOne, [&] { done.set_value(); });
  done.get_future().wait();
}

TEST(Background, DoesJobsInTheirOrder) {
  Background background;
  std::vector<int> done;
  for (int i = 0; i < 4; ++i) background.Do(kOne, [&done, i] { done.push_back(i); });
  Wait(background);
  EXPECT_THAT(done, ElementsAre(0, 1, 2, 3));
}

TEST(Background, DropsTheJobsOfWhoLeavesAndNoOthers) {
  Background background;
  Busy busy(background, kOther);
  std::vector<uint64_t> done;
  background.Do(kOne, [&] { done.push_back(kOne); });
  background.Do(kOther, [&] { done.push_back(kOther); });
  background.Cancel(kOne);
  busy.LetGo();
  Wait(background);
  EXPECT_THAT(done, ElementsAre(kOther));
}

TEST(Background, LetsNobodyLeaveWhoseJobIsAtHand) {
  Background background;
  Busy busy(background, kOne);
  std::promise<void> is_leaving;
  std::thread leaving([&] {
    is_leaving.set_value();
    background.Cancel(kOne);
    EXPECT_TRUE(busy.has_ended);
  });
  is_leaving.get_future().wait();
  busy.LetGo();
  leaving.join();
}

TEST(Background, LeavesOutWhatIsTooMuch) {
  Background background;
  Busy busy(background, kOne);
  std::atomic<int> done = 0;
  for (int i = 0; i < 100; ++i) background.Do(kOther, [&] { ++done; });
  background.Cancel(kOther);
  for (int i = 0; i < 100; ++i) background.Do(kOne, [&] { ++done; });
  busy.LetGo();
  while (done < 8) std::this_thread::yield();
  Wait(background);
  EXPECT_EQ(done, 8);
}

TEST(Background, CancellingDropsAJobThatWaitsBehindTheOneAtHand) {
  bool was_done = false;
  Background background;
  Busy busy(background, kOne);
  // The job at hand ends when the other one, and with it what it owns, has been dropped.
  std::shared_ptr<void> dropped(nullptr, [&](void*) { busy.LetGo(); });
  background.Do(kOne, [&was_done, dropped] { was_done = true; });
  dropped.reset();
  background.Cancel(kOne);
  EXPECT_FALSE(was_done);
}

// A cache whose thread is waited for by one more panel.
class PanelsPrepared : public testing::Test {
 protected:
  static constexpr size_t kSize = 4096;

  PanelCache::Fill Filling(std::byte byte) {
    return [this, byte](std::span<std::byte> panel) {
      ++fills_;
      std::ranges::fill(panel, byte);
    };
  }

  std::byte ByteOf(uint64_t index) {
    std::byte byte{};
    EXPECT_TRUE(
        cache_.Read({.owner = kOne, .index = index}, kSize, 0, {&byte, 1}, Filling(std::byte{9})));
    return byte;
  }

  void WaitForPanels() {
    std::promise<void> done;
    cache_.PrepareSoon({.owner = kOther, .index = 0}, kSize, Filling(std::byte{}), [&] {
      done.set_value();
      return false;
    });
    done.get_future().wait();
  }

  std::atomic<int> fills_ = 0;
  PanelCache cache_{2 * kSize};
};

TEST_F(PanelsPrepared, AreThereForTheRead) {
  cache_.PrepareSoon({.owner = kOne, .index = 5}, kSize, Filling(std::byte{1}),
                     [] { return true; });
  WaitForPanels();
  EXPECT_EQ(ByteOf(5), std::byte{1});
  EXPECT_EQ(fills_, 1);
}

TEST_F(PanelsPrepared, AreNotMadeIfNobodyWantsThemAnyMore) {
  cache_.PrepareSoon({.owner = kOne, .index = 5}, kSize, Filling(std::byte{1}),
                     [] { return false; });
  WaitForPanels();
  EXPECT_EQ(fills_, 0);
}

TEST_F(PanelsPrepared, AreNotMadeTwice) {
  EXPECT_EQ(ByteOf(5), std::byte{9});
  cache_.PrepareSoon({.owner = kOne, .index = 5}, kSize, Filling(std::byte{1}),
                     [] { return true; });
  WaitForPanels();
  EXPECT_EQ(fills_, 1);
}

TEST_F(PanelsPrepared, TakeNoPlaceOfThoseThatNobodyHasRead) {
  for (const uint64_t index : {1U, 2U, 3U}) {
    cache_.PrepareSoon({.owner = kOne, .index = index}, kSize, Filling(std::byte{1}),
                       [] { return true; });
  }
  WaitForPanels();
  EXPECT_EQ(fills_, 2);
  EXPECT_EQ(cache_.used(), 2 * kSize);
}

TEST_F(PanelsPrepared, ThatFailAreMadeByTheRead) {
  cache_.PrepareSoon(
      {.owner = kOne, .index = 5}, kSize,
      [](std::span<std::byte>) { throw std::runtime_error("the disk is broken"); },
      [] { return true; });
  WaitForPanels();
  EXPECT_EQ(cache_.used(), 0U);
  EXPECT_EQ(ByteOf(5), std::byte{9});
}

}  // namespace
}  // namespace ckptfs
