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

  // Reads so many bytes, of one block that was fetched before.
  void ReadElsewhere(uint64_t bytes) {
    Frame* const frame = frames_.Find({0, next_ - 1});
    frames_.Pin(*frame);
    frames_.Unpin(*frame, bytes);
    frames_.RecordHit(now_);
  }

  static constexpr uint64_t kMuch = uint64_t{256} << 20U;

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
  ReadElsewhere(kMuch);
  EXPECT_TRUE(Fetch());  // In the memory of the block that was read.
  EXPECT_TRUE(Fetch());
  EXPECT_EQ(frames_.Find({0, 0}), nullptr);
  EXPECT_NE(frames_.Find({0, 1}), nullptr);
}

// A reader that waits for one range on a slow connection wants all the others soon.
TEST_F(FramesTest, KeepsUnreadBlocksWhileNothingElseIsRead) {
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(Fetch());
  ReadElsewhere(kBlockSize);
  now_ += std::chrono::milliseconds(5000);
  EXPECT_TRUE(Fetch());  // In the memory of the block that was read.
  EXPECT_FALSE(Fetch());
  EXPECT_NE(frames_.Find({0, 0}), nullptr);
}

TEST_F(FramesTest, KeepsStaleBlocksIfFewAreUnread) {
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(Fetch());
  for (uint64_t block = 0; block < 4; ++block) {
    Frame* const frame = frames_.Find({0, block});
    frames_.Pin(*frame);
    frames_.Unpin(*frame, 1);  // Used.
  }
  ReadElsewhere(kMuch);
  EXPECT_TRUE(Fetch());  // In the memory of the block that was read.
  EXPECT_TRUE(Fetch());
  EXPECT_EQ(frames_.Find({0, 0}), nullptr) << "the least recently used one";
  EXPECT_NE(frames_.Find({0, 4}), nullptr);
}

}  // namespace
}  // namespace ckptfs
