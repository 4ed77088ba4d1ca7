#include "parser/layer/range_cache/frames.h"

#include <gtest/gtest.h>

#include <chrono>

namespace ckptfs {
namespace {

class FramesTest : public ::testing::Test {
 protected:
  // Returns whether the next block gets a frame for read-ahead.
  bool Fetch() {
    Frame* const frame = frames_.Add({0, next_++}, kBlockSize, Frames::Need::kAhead, now_,
                                     [](const BlockKey&) { return false; });
    if (frame == nullptr) return false;
    frame->filled = kBlockSize;
    frames_.Settle(*frame, false, now_);
    return true;
  }

  Frames frames_{8 * kBlockSize};
  Frames::Clock::time_point now_{std::chrono::hours(1)};
  uint64_t next_ = 0;
};

TEST_F(FramesTest, KeepsUnreadBlocksForAWhile) {
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(Fetch());
  EXPECT_FALSE(Fetch());
  now_ += std::chrono::milliseconds(500);
  EXPECT_FALSE(Fetch());
}

TEST_F(FramesTest, EvictsStaleBlocksIfMostAreUnreadThoughOthersAreRead) {
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(Fetch());
  now_ += std::chrono::milliseconds(1500);
  frames_.RecordHit(now_);
  EXPECT_TRUE(Fetch());
  EXPECT_EQ(frames_.Find({0, 0}), nullptr);
  EXPECT_NE(frames_.Find({0, 1}), nullptr);
}

TEST_F(FramesTest, KeepsStaleBlocksIfFewAreUnread) {
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(Fetch());
  for (uint64_t block = 0; block < 4; ++block) {
    Frame* const frame = frames_.Find({0, block});
    frames_.Pin(*frame);
    frames_.Unpin(*frame, 1);  // Used.
  }
  now_ += std::chrono::milliseconds(1500);
  frames_.RecordHit(now_);
  EXPECT_TRUE(Fetch());
  EXPECT_EQ(frames_.Find({0, 0}), nullptr) << "the least recently used one";
  EXPECT_NE(frames_.Find({0, 4}), nullptr);
}

}  // namespace
}  // namespace ckptfs
