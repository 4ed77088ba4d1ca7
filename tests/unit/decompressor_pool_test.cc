#include "parser/layer/decompressor.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "tests/support/compressors.h"

namespace ckptfs {
namespace {

constexpr uint64_t kOwner = 1;
constexpr uint64_t kOther = 2;

const std::string kText(100, 'x');

// A decoder of deflate, with 40 KiB of memory, at `position`.
std::unique_ptr<Decompressor> DecompressorAt(uint64_t position) {
  auto decompressor = std::make_unique<Decompressor>(
      CompressedOf(Coding::kDeflate, Compress(Coding::kDeflate, kText), kText.size()));
  decompressor->Skip(position);
  return decompressor;
}

void KeepAt(DecompressorPool& decompressors, uint64_t owner, uint64_t position) {
  decompressors.Keep(owner, decompressors.Start(DecompressorAt(position)));
}

TEST(DecompressorPool, GivesTheNearestBefore) {
  DecompressorPool decompressors;
  KeepAt(decompressors, kOwner, 10);
  KeepAt(decompressors, kOwner, 30);
  KeepAt(decompressors, kOwner, 50);
  EXPECT_EQ(decompressors.Take(kOwner, 0, 49)->position(), 30U);
  EXPECT_EQ(decompressors.Take(kOwner, 0, 50)->position(), 50U);
  EXPECT_EQ(decompressors.Take(kOwner, 11, 49), nullptr);
  EXPECT_EQ(decompressors.Take(kOwner, 10, 49)->position(), 10U);
  EXPECT_EQ(decompressors.used(), 0U);
}

TEST(DecompressorPool, KeepsDecompressorsOfOwnersApart) {
  DecompressorPool decompressors;
  KeepAt(decompressors, kOwner, 10);
  EXPECT_EQ(decompressors.Take(kOther, 0, 100), nullptr);
  decompressors.Drop(kOther);
  EXPECT_NE(decompressors.Take(kOwner, 0, 100), nullptr);
}

TEST(DecompressorPool, DropsWhatWasNotUsedForLongestWhereThereIsNoRoom) {
  DecompressorPool decompressors(100 << 10);
  KeepAt(decompressors, kOwner, 10);
  KeepAt(decompressors, kOther, 20);
  KeepAt(decompressors, kOwner, 30);
  EXPECT_EQ(decompressors.used(), size_t{80} << 10);
  EXPECT_EQ(decompressors.Take(kOwner, 0, 10), nullptr);
  EXPECT_NE(decompressors.Take(kOther, 0, 20), nullptr);
}

TEST(DecompressorPool, StartsOneThatIsTooLargeIfItIsAlone) {
  DecompressorPool decompressors(1);
  KeepAt(decompressors, kOwner, 10);
  KeepAt(decompressors, kOwner, 20);
  EXPECT_EQ(decompressors.Take(kOwner, 0, 10), nullptr);
  EXPECT_EQ(decompressors.Take(kOwner, 0, 20)->position(), 20U);
}

TEST(DecompressorPool, WaitsForRoomUntilOthersAreDone) {
  DecompressorPool decompressors(1);
  auto first = decompressors.Start(DecompressorAt(10));
  std::jthread second([&] { decompressors.Start(DecompressorAt(20)); });
  std::jthread third([&] { KeepAt(decompressors, kOther, 30); });
  decompressors.Keep(kOwner, std::move(first));
  second.join();
  third.join();
  decompressors.Drop(kOther);
  EXPECT_EQ(decompressors.Take(kOwner, 0, 10), nullptr);
  EXPECT_EQ(decompressors.used(), 0U);
}

TEST(DecompressorPool, DropsAllOfAnOwner) {
  DecompressorPool decompressors;
  KeepAt(decompressors, kOwner, 10);
  KeepAt(decompressors, kOther, 20);
  KeepAt(decompressors, kOwner, 30);
  decompressors.Drop(kOwner);
  EXPECT_EQ(decompressors.Take(kOwner, 0, 100), nullptr);
  EXPECT_EQ(decompressors.used(), size_t{40} << 10);
}

}  // namespace
}  // namespace ckptfs
