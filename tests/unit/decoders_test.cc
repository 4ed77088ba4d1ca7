#include "parser/layer/decoders.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "parser/layer/cursor.h"
#include "tests/support/compressors.h"

namespace ckptfs {
namespace {

constexpr uint64_t kOwner = 1;
constexpr uint64_t kOther = 2;

const std::string kText(100, 'x');

// A decoder of deflate, which takes 40 KiB, that stands at `position`.
std::unique_ptr<Cursor> CursorAt(uint64_t position) {
  auto cursor = std::make_unique<Cursor>(
      CodedOf(Coding::kDeflate, Compress(Coding::kDeflate, kText), kText.size()));
  cursor->Skip(position);
  return cursor;
}

void KeepAt(Decoders& decoders, uint64_t owner, uint64_t position) {
  decoders.Keep(owner, decoders.Start(CursorAt(position)));
}

TEST(Decoders, GivesTheNearestBefore) {
  Decoders decoders;
  KeepAt(decoders, kOwner, 10);
  KeepAt(decoders, kOwner, 30);
  KeepAt(decoders, kOwner, 50);
  EXPECT_EQ(decoders.Take(kOwner, 0, 49)->position(), 30U);
  EXPECT_EQ(decoders.Take(kOwner, 0, 50)->position(), 50U);
  EXPECT_EQ(decoders.Take(kOwner, 11, 49), nullptr);
  EXPECT_EQ(decoders.Take(kOwner, 10, 49)->position(), 10U);
  EXPECT_EQ(decoders.used(), 0U);
}

TEST(Decoders, GivesNobodyWhatIsOfAnother) {
  Decoders decoders;
  KeepAt(decoders, kOwner, 10);
  EXPECT_EQ(decoders.Take(kOther, 0, 100), nullptr);
  decoders.Drop(kOther);
  EXPECT_NE(decoders.Take(kOwner, 0, 100), nullptr);
}

TEST(Decoders, DropsWhatWasNotUsedForLongestWhereThereIsNoRoom) {
  Decoders decoders(100 << 10);
  KeepAt(decoders, kOwner, 10);
  KeepAt(decoders, kOther, 20);
  KeepAt(decoders, kOwner, 30);
  EXPECT_EQ(decoders.used(), size_t{80} << 10);
  EXPECT_EQ(decoders.Take(kOwner, 0, 10), nullptr);
  EXPECT_NE(decoders.Take(kOther, 0, 20), nullptr);
}

TEST(Decoders, StartsOneThatIsTooLargeIfItIsAlone) {
  Decoders decoders(1);
  KeepAt(decoders, kOwner, 10);
  KeepAt(decoders, kOwner, 20);
  EXPECT_EQ(decoders.Take(kOwner, 0, 10), nullptr);
  EXPECT_EQ(decoders.Take(kOwner, 0, 20)->position(), 20U);
}

TEST(Decoders, WaitsForRoomUntilOthersAreDone) {
  Decoders decoders(1);
  auto first = decoders.Start(CursorAt(10));
  std::jthread second([&] { decoders.Start(CursorAt(20)); });
  std::jthread third([&] { KeepAt(decoders, kOther, 30); });
  decoders.Keep(kOwner, std::move(first));
  second.join();
  third.join();
  decoders.Drop(kOther);
  EXPECT_EQ(decoders.Take(kOwner, 0, 10), nullptr);
  EXPECT_EQ(decoders.used(), 0U);
}

TEST(Decoders, DropsAllOfAnOwner) {
  Decoders decoders;
  KeepAt(decoders, kOwner, 10);
  KeepAt(decoders, kOther, 20);
  KeepAt(decoders, kOwner, 30);
  decoders.Drop(kOwner);
  EXPECT_EQ(decoders.Take(kOwner, 0, 100), nullptr);
  EXPECT_EQ(decoders.used(), size_t{40} << 10);
}

}  // namespace
}  // namespace ckptfs
