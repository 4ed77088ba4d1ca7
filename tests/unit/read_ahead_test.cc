#include "parser/layer/range_cache/read_ahead.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <optional>

namespace ckptfs {
namespace {

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kMiB = 1024 * kKiB;

// One object, and one reader; each read is followed by all requested fetches.
class ReadAheadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    policy_.AddObject(1000 * kMiB);
    policy_.SetInFlight(8 * kMiB, 0, 8, 8 * kMiB);
  }

  // Only blocks passed to RecordFetched are present.
  std::optional<ReadAhead::Wish> Next() {
    const auto at = [](uint32_t, uint64_t offset) { return offset; };
    return policy_.Next(now_, at, at);
  }

  // Reads, and fetches all that is wished for. Returns where that ends; 0 if it is nothing.
  uint64_t Read(uint64_t offset, uint64_t length) {
    policy_.RecordRead(0, {offset, length}, false, now_);
    uint64_t end = 0;
    for (int i = 0; i < 1000; ++i) {
      const auto wish = Next();
      if (!wish) break;
      longest_ = std::max(longest_, wish->range.length);
      policy_.RecordFetched(wish->stream, wish->range);
      end = std::max(end, wish->range.offset + wish->range.length);
      lowest_ = std::min(lowest_, wish->range.offset);
    }
    return end;
  }

  // Reads in order, by 128 KiB, from `begin` to `end`. Returns the end of all requested fetches.
  uint64_t ReadAll(uint64_t begin, uint64_t end) {
    uint64_t farthest = 0;
    for (uint64_t offset = begin; offset < end; offset += 128 * kKiB) {
      farthest = std::max(farthest, Read(offset, std::min(128 * kKiB, end - offset)));
    }
    return farthest;
  }

  ReadAhead policy_{96 * kMiB};
  ReadAhead::Clock::time_point now_{std::chrono::hours(1)};
  uint64_t longest_ = 0;            // Of what was wished for, ...
  uint64_t lowest_ = ~uint64_t{0};  // ... and its lowest offset.
};

TEST_F(ReadAheadTest, WantsNothingMoreThanARandomReadAsksFor) {
  policy_.AdviseFile(0, {0, 1000 * kMiB});
  EXPECT_EQ(Read(500 * kMiB, 4 * kKiB), 500 * kMiB + 4 * kKiB);
  EXPECT_EQ(Read(300 * kMiB, 4 * kKiB), 300 * kMiB + 4 * kKiB);
}

TEST_F(ReadAheadTest, WantsAMebibyteWhereAFileBegins) {
  policy_.AdviseFile(0, {10 * kMiB, 100 * kMiB});
  const uint64_t end = Read(10 * kMiB, 4 * kKiB);
  EXPECT_GT(end, 11 * kMiB - 128 * kKiB);
  EXPECT_LE(end, 11 * kMiB);
}

TEST_F(ReadAheadTest, WantsASmallFileWholeAndLittleOfTheNextOne) {
  policy_.AdviseFile(0, {10 * kMiB, 100 * kKiB});
  policy_.AdviseFile(0, {10 * kMiB + 100 * kKiB, 100 * kMiB});
  EXPECT_EQ(Read(10 * kMiB, 4 * kKiB), 10 * kMiB + 612 * kKiB);
}

TEST_F(ReadAheadTest, KeepsTheLinkBusyForAReaderInOrder) {
  policy_.AdviseFile(0, {0, 1000 * kMiB});
  const uint64_t farthest = ReadAll(0, 16 * kMiB);
  EXPECT_LE(farthest, 48 * kMiB);
  EXPECT_GE(farthest, 44 * kMiB);
}

TEST_F(ReadAheadTest, WantsNoMoreThanItsMemoryAndLongRanges) {
  policy_.SetInFlight(48 * kMiB, 24 * kMiB, 8, 8 * kMiB);
  policy_.AdviseFile(0, {0, 1000 * kMiB});
  const uint64_t farthest = ReadAll(0, 200 * kMiB);
  EXPECT_LE(farthest, 296 * kMiB);
  EXPECT_GE(farthest, 288 * kMiB);
  EXPECT_GE(longest_, 5 * kMiB);
}

TEST_F(ReadAheadTest, ExceedsWhatKeepsTheLinkBusyByOneRangeAtMost) {
  policy_.AdviseFile(0, {0, 1000 * kMiB});
  policy_.RecordRead(0, {0, 8 * kMiB}, false, now_);
  policy_.SetInFlight(8 * kMiB, 8 * kMiB - 1, 8, 8 * kMiB);
  uint64_t shortest = ~uint64_t{0};
  for (int i = 0; i < 8; ++i) {
    const auto wish = Next();
    ASSERT_TRUE(wish);
    EXPECT_LE(wish->range.length, kMiB + 1);  // The average.
    shortest = std::min(shortest, wish->range.length);
  }
  EXPECT_LE(shortest, kMiB / 2);  // They are of several lengths.
  policy_.SetInFlight(8 * kMiB, 0, 8, 8 * kMiB);
  uint64_t longest = 0;
  for (int i = 0; i < 8; ++i) longest = std::max(longest, Next()->range.length);
  EXPECT_EQ(longest, 2 * kMiB);
}

TEST_F(ReadAheadTest, OpensTheWindowFastForALongReadBehindAHeader) {
  policy_.AdviseFile(0, {0, 1000 * kMiB});
  policy_.Announce(0, {0, 128 * kKiB});
  EXPECT_GE(Read(0, 64), 7 * kMiB);
}

TEST_F(ReadAheadTest, StaysWithinTheFileThatIsReadAndALittleBehindIt) {
  policy_.AdviseFile(0, {100 * kMiB, 64 * kMiB});
  policy_.AdviseFile(0, {164 * kMiB, 64 * kMiB});
  EXPECT_EQ(ReadAll(100 * kMiB, 164 * kMiB), 168 * kMiB);
}

TEST_F(ReadAheadTest, LeavesOtherFilesToThePlan) {
  for (uint64_t i = 0; i < 100; ++i) policy_.AdviseFile(0, {i * kMiB, kMiB});
  EXPECT_EQ(ReadAll(0, 64 * kMiB), 64 * kMiB);
  const auto wish =
      policy_.NextPlanned(0, 100 * kMiB, now_, [](uint32_t, uint64_t at) { return at; });
  ASSERT_TRUE(wish);
  EXPECT_EQ(wish->stream, ReadAhead::kPlanned);
  EXPECT_EQ(wish->range.offset, 64 * kMiB);
  EXPECT_FALSE(
      policy_.NextPlanned(100 * kMiB, 100 * kMiB, now_, [](uint32_t, uint64_t at) { return at; }));
}

TEST_F(ReadAheadTest, OpensTheWindowFastForLongReads) {
  policy_.AdviseFile(0, {0, 1000 * kMiB});
  EXPECT_GE(Read(0, 128 * kKiB), 8 * kMiB);
  EXPECT_GE(Read(128 * kKiB, 128 * kKiB), 16 * kMiB);
}

TEST_F(ReadAheadTest, TakesFilesThatOverlapForOne) {
  policy_.AdviseFile(0, {0, 10 * kMiB});
  policy_.AdviseFile(0, {5 * kMiB, 15 * kMiB});
  EXPECT_EQ(ReadAll(0, 20 * kMiB), 24 * kMiB);
}

TEST_F(ReadAheadTest, FollowsReadsThatComeInAnotherOrder) {
  policy_.AdviseFile(0, {0, 1000 * kMiB});
  Read(128 * kKiB, 128 * kKiB);
  Read(0, 128 * kKiB);
  Read(384 * kKiB, 128 * kKiB);
  Read(256 * kKiB, 128 * kKiB);
  EXPECT_GE(Read(512 * kKiB, 512 * kKiB), 3 * kMiB / 2);
}

TEST_F(ReadAheadTest, FollowsAReaderThatRunsBackward) {
  policy_.AdviseFile(0, {100 * kMiB, 800 * kMiB});
  uint64_t offset = 900 * kMiB;
  for (int i = 0; i < 3; ++i) Read(offset -= 32 * kKiB, 32 * kKiB);
  EXPECT_GE(lowest_, offset);
  while (offset > 890 * kMiB) Read(offset -= 32 * kKiB, 32 * kKiB);
  EXPECT_LE(lowest_, offset - 28 * kMiB);
  EXPECT_GE(lowest_, offset - 32 * kMiB - kMiB);
  while (offset > 100 * kMiB) Read(offset -= 32 * kKiB, 32 * kKiB);
  EXPECT_GE(lowest_, 80 * kMiB);  // And not much before the file.
  EXPECT_GT(Read(50 * kMiB, 32 * kKiB) + Read(50 * kMiB + 32 * kKiB, 32 * kKiB), 50 * kMiB);
}

TEST_F(ReadAheadTest, TurnsAgainForAReaderThatRunsForward) {
  policy_.AdviseFile(0, {0, 1000 * kMiB});
  uint64_t offset = 500 * kMiB;
  for (int i = 0; i < 20; ++i) Read(offset -= 32 * kKiB, 32 * kKiB);
  EXPECT_LT(lowest_, offset);
  uint64_t end = 0;
  for (int i = 0; i < 40; ++i, offset += 32 * kKiB) end = std::max(end, Read(offset, 32 * kKiB));
  EXPECT_GT(end, offset);
}

TEST_F(ReadAheadTest, BeginsAtTheEndOfAFileAfterOneThatWasReadBackward) {
  policy_.AdviseFile(0, {0, 10 * kMiB});
  policy_.AdviseFile(0, {10 * kMiB, 10 * kMiB});
  for (uint64_t offset = 20 * kMiB; offset > 10 * kMiB;) Read(offset -= 32 * kKiB, 32 * kKiB);
  lowest_ = ~uint64_t{0};
  Read(10 * kMiB - 32 * kKiB, 32 * kKiB);
  EXPECT_LE(lowest_, 2 * kMiB);
}

TEST_F(ReadAheadTest, EndsAWindowWhereAnotherThreadHasBegun) {
  policy_.AdviseFile(0, {0, 200 * kMiB});
  ReadAll(100 * kMiB, 120 * kMiB);
  EXPECT_EQ(ReadAll(0, 100 * kMiB), 100 * kMiB);
  EXPECT_GT(ReadAll(100 * kMiB, 104 * kMiB), 110 * kMiB);  // It reads on, all the same.
}

TEST_F(ReadAheadTest, SharesMemoryBetweenReaders) {
  policy_.AdviseFile(0, {0, 1000 * kMiB});
  ReadAll(0, 100 * kMiB);
  const uint64_t farthest = ReadAll(500 * kMiB, 600 * kMiB);
  EXPECT_LE(farthest, 600 * kMiB + 48 * kMiB + 128 * kKiB);
}

TEST_F(ReadAheadTest, StopsForReadersThatAreGone) {
  policy_.AdviseFile(0, {0, 1000 * kMiB});
  policy_.RecordRead(0, {0, 128 * kKiB}, false, now_);
  now_ += std::chrono::seconds(6);
  EXPECT_FALSE(Next());
}

TEST_F(ReadAheadTest, WantsNothingMoreAfterAFailureUntilItIsReadAgain) {
  policy_.AdviseFile(0, {0, 1000 * kMiB});
  const auto stream = policy_.RecordRead(0, {0, 128 * kKiB}, false, now_);
  policy_.RecordFailed(stream);
  policy_.RecordFetched(stream, {0, 128 * kKiB});
  EXPECT_FALSE(Next());
  EXPECT_GT(Read(128 * kKiB, 128 * kKiB), 256 * kKiB);
}

TEST_F(ReadAheadTest, KeepsAReaderInOrderThroughManyRandomReads) {
  policy_.AdviseFile(0, {0, 1000 * kMiB});
  ReadAll(0, 16 * kMiB);
  for (uint64_t i = 0; i < 1000; ++i) Read(100 * kMiB + i * 7919 % 800 * kMiB, 4 * kKiB);
  EXPECT_GE(ReadAll(16 * kMiB, 20 * kMiB), 33 * kMiB);
}

TEST_F(ReadAheadTest, HasWhatLiesBehindAHeaderComeWithItAsLongAsFilesAreUnknown) {
  const auto first = policy_.RecordRead(0, {0, 1000}, false, now_);
  EXPECT_EQ(policy_.EndOf(first, now_), 128 * kKiB + 1000);
  const auto second = policy_.RecordRead(0, {100 * kMiB, 3 * kMiB}, false, now_);
  EXPECT_EQ(policy_.EndOf(second, now_), 103 * kMiB + 512 * kKiB);
}

TEST_F(ReadAheadTest, WantsNothingByItselfAsLongAsFilesAreUnknown) {
  EXPECT_EQ(Read(0, 20 * kMiB), 20 * kMiB);
}

TEST_F(ReadAheadTest, ForgetsWhatWasReadToOpenAnObject) {
  Read(0, 10 * kMiB);
  policy_.AdviseFile(0, {0, 1000 * kMiB});
  EXPECT_FALSE(Next());
}

}  // namespace
}  // namespace ckptfs
