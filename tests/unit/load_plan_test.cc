#include "parser/layer/range_cache/load_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

namespace ckptfs {
namespace {

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kMiB = 1024 * kKiB;
constexpr uint64_t kTarget = 20 * kMiB;
constexpr uint64_t kMost = 200 * kMiB;

// Two objects of 50 files of 1 MiB each, with 100 bytes between them.
class LoadPlanTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kFiles = 50;
  static constexpr uint64_t kStep = kMiB + 100;

  void SetUp() override {
    for (uint32_t object = 0; object < 2; ++object) {
      files_.AddObject(kFiles * kStep);
      for (uint64_t i = 0; i < kFiles; ++i) files_.AddFile(object, {i * kStep, kMiB});
    }
  }

  void Read(uint64_t file, uint64_t length, LoadPlan::Kind kind = LoadPlan::Kind::kBegin,
            bool is_fetched = true) {
    plan_.RecordRead(static_cast<uint32_t>(file / kFiles), {file % kFiles * kStep, length}, kind,
                     is_fetched);
  }

  std::optional<LoadPlan::Piece> Next(uint64_t length) {
    return plan_.Next(length, [](uint32_t, uint64_t offset) { return offset; });
  }

  // Fetches everything in the plan. Returns the number of bytes.
  uint64_t FetchAll(uint64_t length) {
    uint64_t bytes = 0;
    while (const auto piece = Next(length)) {
      EXPECT_LE(piece->range.length, length);
      bytes += piece->range.length;
      plan_.RecordFetched(*piece);
    }
    return bytes;
  }

  FileMap files_;
  LoadPlan plan_{files_};
};

TEST_F(LoadPlanTest, BeginsWithTheSecondFile) {
  Read(10, kMiB);
  EXPECT_FALSE(plan_.is_active());
  EXPECT_TRUE(plan_.ExpectsWholeFiles());
  EXPECT_EQ(plan_.Lead(kTarget, kMost), 0U);
  Read(11, 4096);
  EXPECT_TRUE(plan_.is_active());
  EXPECT_EQ(plan_.Lead(kTarget, kMost), 2 * kMiB);
}

TEST_F(LoadPlanTest, FetchesBehindTheLastFile) {
  Read(10, kMiB);
  Read(30, 4096);
  const auto piece = Next(256 * kKiB);
  ASSERT_TRUE(piece);
  EXPECT_EQ(piece->object, 0U);
  EXPECT_EQ(piece->range.offset, 31 * kStep);
  EXPECT_EQ(piece->range.length, 256 * kKiB);
}

TEST_F(LoadPlanTest, FetchesEachFileOnce) {
  Read(10, kMiB);
  Read(30, 4096);
  // All but the two that readers have begun, and the gaps within pieces.
  const uint64_t bytes = FetchAll(3 * kMiB);
  EXPECT_GE(bytes, 98 * kMiB);
  EXPECT_LE(bytes, 98 * kMiB + 98 * uint64_t{100});
}

TEST_F(LoadPlanTest, DoesNotFetchPresentRanges) {
  Read(10, kMiB);
  Read(11, 4096);
  uint64_t bytes = 0;
  const auto present = [](uint32_t object, uint64_t offset) {
    return object == 1 ? kFiles * kStep : offset;
  };
  while (const auto piece = plan_.Next(kMiB, present)) {
    EXPECT_EQ(piece->object, 0U);
    bytes += piece->range.length;
    plan_.RecordFetched(*piece);
  }
  EXPECT_GE(bytes, 48 * kMiB);
  EXPECT_LE(bytes, 48 * kMiB + 48 * uint64_t{100});
}

// transformers looks at the first element of each tensor before it reads all of them.
TEST_F(LoadPlanTest, FetchesFilesThatWereOnlyBegunWhenAReaderWaits) {
  Read(10, kMiB);
  for (uint64_t i = 11; i < 15; ++i) Read(i, 4096);
  FetchAll(3 * kMiB);
  EXPECT_FALSE(Next(kMiB));
  Read(15, kMiB);
  EXPECT_FALSE(Next(kMiB));
  const uint64_t lead = plan_.Lead(kTarget, kMost);
  plan_.RecordRead(0, {11 * kStep + 4096, 4096}, LoadPlan::Kind::kNext, false);
  const auto piece = Next(kMiB);
  ASSERT_TRUE(piece);
  EXPECT_EQ(piece->range.offset, 16 * kStep);  // From the file that was begun last.
  EXPECT_EQ(plan_.Lead(kTarget, kMost), 2 * lead);
  uint64_t first = kFiles * kStep;
  while (const auto next = Next(kMiB)) {
    if (next->object == 0) {
      first = std::min(first, next->range.offset);
      EXPECT_NE(next->range.offset, 10 * kStep);  // It was read.
    }
    plan_.RecordFetched(*next);
  }
  EXPECT_EQ(first, 0U);
}

TEST_F(LoadPlanTest, GoesOnWhenAnotherObjectIsOpened) {
  Read(10, kMiB);
  Read(11, 4096);
  FetchAll(3 * kMiB);
  files_.AddObject(kMiB);
  files_.AddFile(2, {0, kMiB});
  plan_.RecordRead(0, {11 * kStep + 4096, 4096}, LoadPlan::Kind::kNext, true);
  EXPECT_TRUE(plan_.is_active());
  const auto piece = Next(kMiB);
  ASSERT_TRUE(piece);
  EXPECT_EQ(piece->object, 2U);
}

TEST_F(LoadPlanTest, EndsWhenFilesAreAddedBetweenTheOthers) {
  Read(10, kMiB);
  Read(11, 4096);
  files_.AddFile(0, {12 * kStep - 100, 100});
  plan_.RecordRead(0, {11 * kStep + 4096, 4096}, LoadPlan::Kind::kNext, true);
  EXPECT_FALSE(plan_.is_active());
}

TEST_F(LoadPlanTest, LeadsFartherTheMoreWasRead) {
  for (uint64_t i = 0; i < 3; ++i) Read(i, kMiB);
  EXPECT_EQ(plan_.Lead(kTarget, kMost), 12 * kMiB);
  for (uint64_t i = 3; i < 10; ++i) Read(i, kMiB);
  EXPECT_EQ(plan_.Lead(kTarget, kMost), kTarget);
  EXPECT_EQ(plan_.Lead(kTarget, 5 * kMiB), 5 * kMiB);
}

TEST_F(LoadPlanTest, LeadsFartherTheMoreSmallFilesWereRead) {
  FileMap files;
  files.AddObject(kMiB);
  for (uint64_t i = 0; i < 100; ++i) files.AddFile(0, {i * kKiB, kKiB});
  LoadPlan plan(files);
  for (uint64_t i = 0; i < 8; ++i) {
    plan.RecordRead(0, {i * kKiB, kKiB}, LoadPlan::Kind::kBegin, true);
    if (i == 0) continue;
    EXPECT_EQ(plan.Lead(kMost, kMost), kMiB << std::min(i, uint64_t{4}));
  }
}

TEST_F(LoadPlanTest, LeadsFartherInAnUnexpectedOrder) {
  std::vector<uint64_t> order(2 * kFiles);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(1));
  for (uint64_t i = 0; i < 10; ++i) Read(order[i], kMiB, LoadPlan::Kind::kBegin, false);
  EXPECT_EQ(plan_.Lead(kTarget, kMost), kMost);
}

TEST_F(LoadPlanTest, IsRefutedByScatteredReads) {
  for (uint64_t i = 0; i < 10; ++i) Read(i, kMiB);
  Read(40, 4096, LoadPlan::Kind::kScattered);
  EXPECT_TRUE(plan_.is_active());  // Another thread may begin this file.
  Read(45, 4096, LoadPlan::Kind::kScattered);
  EXPECT_FALSE(plan_.is_active());
  EXPECT_FALSE(plan_.ExpectsWholeFiles());
  EXPECT_FALSE(Next(kMiB));
}

TEST_F(LoadPlanTest, IsNotRefutedByThreadsThatShareAFile) {
  for (uint64_t i = 0; i < 10; ++i) {
    plan_.RecordRead(0, {i * kStep, kMiB / 2}, LoadPlan::Kind::kBegin, true);
    plan_.RecordRead(0, {i * kStep + kMiB / 2, kMiB / 2}, LoadPlan::Kind::kScattered, true);
    EXPECT_EQ(plan_.is_active(), i > 0);
  }
  for (uint64_t i = 10; i < 20; ++i) {  // The second thread is faster.
    plan_.RecordRead(0, {i * kStep + kMiB / 2, kMiB / 2}, LoadPlan::Kind::kScattered, true);
    plan_.RecordRead(0, {i * kStep, kMiB / 2}, LoadPlan::Kind::kBegin, true);
    EXPECT_TRUE(plan_.is_active());
  }
}

TEST_F(LoadPlanTest, IsNotRefutedByThreadsThatAllReadTheHeaderOfAFile) {
  for (uint64_t i = 0; i < 20; ++i) {
    Read(i, 40);
    Read(i, 40);
    plan_.RecordRead(0, {i * kStep, kMiB / 2}, LoadPlan::Kind::kNext, true);
    Read(i, 40);
    plan_.RecordRead(0, {i * kStep + kMiB / 2, kMiB / 2}, LoadPlan::Kind::kScattered, true);
    EXPECT_EQ(plan_.is_active(), i > 0);
  }
}

TEST_F(LoadPlanTest, IsRefutedByManyReadsInTheMiddleOfAFile) {
  for (uint64_t i = 0; i < 3; ++i) Read(i, kMiB);
  Read(3, 4096);
  EXPECT_TRUE(plan_.is_active());
  int strays = 0;
  for (; plan_.is_active() && strays < 10'000; ++strays) {
    plan_.RecordRead(0, {3 * kStep + 8192, 1}, LoadPlan::Kind::kScattered, true);
  }
  EXPECT_GE(strays, 8);
  EXPECT_LT(strays, 10'000);
}

// Two tensors that share their bytes are one file, which is read twice. The second time, the page
// cache of the kernel may lack some pages.
TEST_F(LoadPlanTest, LearnsNothingFromPagesOfAFileThatWasReadWhole) {
  Read(10, kMiB);
  Read(11, 4096);
  FetchAll(3 * kMiB);
  EXPECT_FALSE(Next(kMiB));
  EXPECT_TRUE(plan_.ExpectsRestOf(0, 11 * kStep + 512 * kKiB));
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(plan_.ExpectsRestOf(0, 10 * kStep + 512 * kKiB));
    plan_.RecordRead(0, {10 * kStep + 512 * kKiB, 4096}, LoadPlan::Kind::kScattered, false);
  }
  EXPECT_TRUE(plan_.is_active());
  EXPECT_FALSE(Next(kMiB));
}

TEST_F(LoadPlanTest, CountsFilesThatAreReadBackward) {
  for (uint64_t i = 0; i < 2; ++i) {
    if (i == 1) Read(i, 4096);  // memcpy looks at the begin first.
    plan_.RecordRead(0, {i * kStep + kMiB / 2, kMiB / 2}, LoadPlan::Kind::kEnd, true);
    plan_.RecordRead(0, {i * kStep + i * 4096, kMiB / 2 - i * 4096}, LoadPlan::Kind::kNext, true);
    EXPECT_EQ(plan_.is_active(), i > 0);
  }
}

TEST_F(LoadPlanTest, IsRefutedByFilesThatAreNotReadToTheirEnds) {
  for (uint64_t i = 0; i < 10; ++i) Read(i, kMiB);
  for (uint64_t i = 10; i < 18; ++i) Read(i, 4096);
  EXPECT_TRUE(plan_.is_active());
  Read(18, 4096);
  EXPECT_FALSE(plan_.is_active());
}

TEST_F(LoadPlanTest, BeginsAnewWithASecondPass) {
  for (uint64_t i = 0; i < 2 * kFiles; ++i) Read(i, kMiB);
  EXPECT_FALSE(Next(kMiB));
  for (uint64_t i = 0; i < 12; ++i) Read(i, kMiB);
  const auto piece = Next(kMiB);
  ASSERT_TRUE(piece);
  EXPECT_EQ(piece->range.offset, 12 * kStep);
}

TEST_F(LoadPlanTest, LeavesOutWhatWasReadBeforeItWasRefuted) {
  for (uint64_t i = 0; i < 10; ++i) Read(i, kMiB);
  Read(10, kMiB / 2);
  for (uint64_t i = 40; i < 50; ++i) Read(i, 4096, LoadPlan::Kind::kScattered);
  EXPECT_FALSE(plan_.is_active());
  plan_.RecordRead(0, {10 * kStep + kMiB / 2, kMiB / 2}, LoadPlan::Kind::kNext, true);
  Read(11, 4096);
  EXPECT_TRUE(plan_.is_active());
  EXPECT_EQ(FetchAll(kMiB), (2 * kFiles - 12) * kMiB);
}

TEST_F(LoadPlanTest, BeginsASecondPassAtOnceAfterItWasRefuted) {
  for (uint64_t i = 0; i < 10; ++i) Read(i, kMiB);
  for (uint64_t i = 40; i < 50; ++i) Read(i, 4096, LoadPlan::Kind::kScattered);
  Read(0, kMiB);
  Read(1, kMiB);
  EXPECT_TRUE(plan_.is_active());
  EXPECT_EQ(FetchAll(kMiB), (2 * kFiles - 2) * kMiB);
}

TEST_F(LoadPlanTest, CountsPiecesOfAFile) {
  for (uint64_t at = 0; at < kMiB; at += 128 * kKiB) {
    plan_.RecordRead(0, {at, 128 * kKiB}, at == 0 ? LoadPlan::Kind::kBegin : LoadPlan::Kind::kNext,
                     false);
  }
  EXPECT_TRUE(plan_.ExpectsWholeFiles());
}

TEST_F(LoadPlanTest, MergesOverlappingFiles) {
  files_.AddFile(0, {5 * kStep, 3 * kStep});
  EXPECT_EQ(files_.count(), 2 * kFiles - 2);
  EXPECT_EQ(files_.EndAt(0, 6 * kStep), 8 * kStep);
  EXPECT_TRUE(files_.IsBegin(0, 5 * kStep - 100));
  EXPECT_FALSE(files_.IsBegin(0, 6 * kStep));
}

// A member of an archive, whose header has an unknown length.
TEST_F(LoadPlanTest, DividesFilesWhoseHeadersAreEstimates) {
  FileMap files;
  files.AddObject(100 * kMiB);
  for (uint64_t i = 0; i < 100; ++i) files.AddFile(0, {i * 16 * kKiB, 17 * kKiB});
  EXPECT_EQ(files.count(), 100U);
  EXPECT_EQ(files.EndAt(0, 0), 16 * kKiB);
  files.AddFile(0, {0, 1000 * kKiB});  // A view of many of them.
  EXPECT_LE(files.count(), 40U);
}

// A checkpoint of many small files is one long range.
TEST_F(LoadPlanTest, MergesNeighboursIntoOnePiece) {
  Read(0, kMiB);
  Read(1, 4096);
  const auto piece = Next(8 * kMiB);
  ASSERT_TRUE(piece);
  EXPECT_EQ(piece->range.offset, 2 * kStep);
  EXPECT_EQ(piece->range.length, 8 * kMiB);
}

}  // namespace
}  // namespace ckptfs
