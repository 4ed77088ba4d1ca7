#include "parser/layer/verified.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <latch>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/io/simple_sources.h"
#include "parser/layer/assembled.h"
#include "parser/layer/decompressed.h"
#include "parser/layer/strided.h"
#include "tests/support/sources.h"
#include "tests/support/zip_writer.h"

namespace ckptfs {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Property;
using testing::StrEq;
using testing::Throws;

// The data of most tests, and their hashes.
constexpr const char* kData = "abcdefghij";
constexpr uint32_t kCrc = 0x3981703a;
constexpr const char* kSha256 = "72399361da6a7754fec986dca5b7cbaf1c810a28ded4abaf56b2106d06cb78b0";

std::array<std::byte, 32> FromHex(const std::string& hex) {
  std::array<std::byte, 32> bytes = {};
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes.at(i) = static_cast<std::byte>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  }
  return bytes;
}

uint32_t Crc32(const std::string& text) {
  return static_cast<uint32_t>(
      ::crc32_z(0, reinterpret_cast<const Bytef*>(text.data()), text.size()));
}

// Keeps what is reported: "memory: tensor 'w': CRC32 matches".
class Reports {
 public:
  std::shared_ptr<const Verification> Verify(bool is_enforced = false) {
    const auto report = [this](std::string_view what, Verdict verdict, std::string_view found) {
      const std::scoped_lock lock(mutex_);
      lines_.push_back(fmt::format("{}: {}", what, found));
      verdicts_.push_back(verdict);
    };
    return std::make_shared<Verification>(
        Verification{.is_enforced = is_enforced, .report = report});
  }

  // Once nobody reads any more.
  const std::vector<std::string>& lines() const { return lines_; }
  const std::vector<Verdict>& verdicts() const { return verdicts_; }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
  std::vector<Verdict> verdicts_;
};

// A source that counts the bytes read from it, and fails on request.
class CountingSource final : public MemorySource {
 public:
  using MemorySource::MemorySource;

  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    if (fails) Fail(EIO, "connection reset");
    count += buffer.size();
    MemorySource::ReadAt(offset, buffer);
  }

  mutable std::atomic<uint64_t> count = 0;
  std::atomic<bool> fails = false;
};

// Between other bytes.
Extent Between(const std::string& bytes) {
  return {std::make_shared<MemorySource>("<<<" + bytes + ">>>"), 3, bytes.size()};
}

constexpr uint64_t kBegin = 3;  // Of the data there.

ByteSourcePtr Verified(const std::string& bytes, const Hashes& hashes, Reports& reports,
                       bool is_enforced = false) {
  return MakeVerified(Between(bytes), hashes, {}, "tensor 'w'", reports.Verify(is_enforced));
}

// A call that throws an Error of EIO and that message.
auto FailsToRead(const char* message) {
  return Throws<Error>(AllOf(Property(&Error::code, EIO), Property(&Error::what, StrEq(message))));
}

TEST(Verified, HasTheBytesWhereTheyWere) {
  Reports reports;
  const auto source = Verified(kData, {.crc32 = kCrc}, reports);
  EXPECT_EQ(source->name(), "memory");
  EXPECT_EQ(source->size(), 16U);
  EXPECT_EQ(ReadString(*source, 0, 16), "<<<abcdefghij>>>");
  EXPECT_EQ(ReadString(*source, 4, 2), "bc");
}

TEST(Verified, LogsMatchingHashesOnce) {
  Reports reports;
  const auto source = Verified(kData, {.crc32 = kCrc, .sha256 = FromHex(kSha256)}, reports);
  EXPECT_EQ(source->verdict(), Verdict::kUnread);
  ReadString(*source, kBegin, 10);
  EXPECT_EQ(source->verdict(), Verdict::kRight);
  ReadString(*source, kBegin, 10);
  EXPECT_THAT(reports.lines(), ElementsAre("memory: tensor 'w': CRC32 and SHA-256 match"));
  EXPECT_THAT(reports.verdicts(), ElementsAre(Verdict::kRight));
}

TEST(Verified, LogsThePresentHash) {
  Reports reports;
  ReadString(*Verified(kData, {.crc32 = kCrc}, reports), kBegin, 10);
  ReadString(*Verified(kData, {.sha256 = FromHex(kSha256)}, reports), kBegin, 10);
  EXPECT_THAT(reports.lines(), ElementsAre("memory: tensor 'w': CRC32 matches",
                                           "memory: tensor 'w': SHA-256 matches"));
}

TEST(Verified, ReportsACrc32Mismatch) {
  Reports reports;
  const auto source = Verified("abcdefghiX", {.crc32 = kCrc, .sha256 = FromHex(kSha256)}, reports);
  EXPECT_EQ(ReadString(*source, kBegin, 10), "abcdefghiX");
  EXPECT_EQ(source->verdict(), Verdict::kWrong);
  EXPECT_THAT(
      reports.lines(),
      ElementsAre("memory: tensor 'w': CRC32 mismatch (found 0xf15621ba, expected 0x3981703a)"));
  EXPECT_THAT(reports.verdicts(), ElementsAre(Verdict::kWrong));
}

TEST(Verified, ShowsACrc32WithAllItsDigits) {
  Reports reports;
  ReadString(*Verified(kData, {.crc32 = 1}, reports), kBegin, 10);
  EXPECT_THAT(
      reports.lines(),
      ElementsAre("memory: tensor 'w': CRC32 mismatch (found 0x3981703a, expected 0x00000001)"));
}

TEST(Verified, ReportsASha256Mismatch) {
  Reports reports;
  const auto source =
      Verified(kData, {.crc32 = kCrc, .sha256 = FromHex(std::string(64, '0'))}, reports);
  ReadString(*source, kBegin, 10);
  EXPECT_EQ(source->verdict(), Verdict::kWrong);
  EXPECT_THAT(
      reports.lines(),
      ElementsAre("memory: tensor 'w': SHA-256 mismatch (found "
                  "72399361da6a7754fec986dca5b7cbaf1c810a28ded4abaf56b2106d06cb78b0, expected "
                  "0000000000000000000000000000000000000000000000000000000000000000)"));
}

TEST(Verified, BeginsWithWhatWasHashedBeforeTheBytes) {
  Reports reports;
  constexpr const char* kWithHead =
      "4feba958cd93b692f2bdfa98f6ce34b4d69ac151cebb8d35f8c5a3858fc80ce1";
  const std::string head = "head";
  const auto source =
      MakeVerified(Between(kData), {.crc32 = 0xf4125c04, .sha256 = FromHex(kWithHead)},
                   std::as_bytes(std::span(head)), "tensor 'w'", reports.Verify());
  ReadString(*source, kBegin, 10);
  EXPECT_THAT(reports.lines(), ElementsAre("memory: tensor 'w': CRC32 and SHA-256 match"));
}

TEST(Verified, ChecksNothingWithoutHashes) {
  Reports reports;
  const Extent data = Between(kData);
  EXPECT_EQ(MakeVerified(data, {}, {}, "tensor 'w'", reports.Verify()), data.source);
}

TEST(Verified, ChecksNoTensorWithoutBytes) {
  Reports reports;
  const Extent data = Between("");
  EXPECT_EQ(MakeVerified(data, {.crc32 = 7}, {}, "tensor 'w'", reports.Verify()), data.source);
}

TEST(Verified, KnowsNothingFromAPart) {
  Reports reports;
  const auto source = Verified(kData, {.crc32 = kCrc}, reports);
  ReadString(*source, kBegin, 9);
  ReadString(*source, 0, kBegin);
  ReadString(*source, kBegin + 10, 3);
  ReadString(*source, kBegin + 10, 0);
  EXPECT_EQ(source->verdict(), Verdict::kUnread);
  EXPECT_THAT(reports.lines(), IsEmpty());
}

TEST(Verified, TakesReadsInOrder) {
  Reports reports;
  const auto source = Verified(kData, {.crc32 = kCrc}, reports);
  ReadString(*source, kBegin, 3);
  ReadString(*source, kBegin + 3, 1);
  ReadString(*source, kBegin + 4, 6);
  EXPECT_EQ(source->verdict(), Verdict::kRight);
}

TEST(Verified, TakesReadsFromTheLastToTheFirst) {
  Reports reports;
  const auto source = Verified(kData, {.sha256 = FromHex(kSha256)}, reports);
  ReadString(*source, kBegin + 7, 3);
  ReadString(*source, kBegin + 5, 2);
  ReadString(*source, kBegin + 1, 4);
  EXPECT_EQ(source->verdict(), Verdict::kUnread);
  ReadString(*source, kBegin, 1);
  EXPECT_EQ(source->verdict(), Verdict::kRight);
}

TEST(Verified, TakesReadsThatOverlap) {
  Reports reports;
  const auto source = Verified(kData, {.crc32 = kCrc}, reports);
  ReadString(*source, kBegin + 2, 3);
  ReadString(*source, kBegin + 6, 2);
  ReadString(*source, kBegin + 4, 3);
  ReadString(*source, kBegin, 4);
  ReadString(*source, kBegin + 3, 2);
  EXPECT_EQ(source->verdict(), Verdict::kUnread);
  ReadString(*source, kBegin + 7, 3);
  EXPECT_EQ(source->verdict(), Verdict::kRight);
}

TEST(Verified, TakesReadsThatReachBeyondTheBytes) {
  Reports reports;
  const auto source = Verified(kData, {.crc32 = kCrc}, reports);
  ReadString(*source, kBegin + 5, 8);
  ReadString(*source, 1, 8);
  EXPECT_EQ(source->verdict(), Verdict::kRight);
}

TEST(Verified, TakesPieces) {
  Reports reports;
  const auto source = Verified(kData, {.crc32 = kCrc}, reports);
  std::string odd(5, '\0');
  source->ReadPiecesAt(kBegin + 1, 2, 1, std::as_writable_bytes(std::span(odd)));
  EXPECT_EQ(odd, "bdfhj");
  EXPECT_EQ(source->verdict(), Verdict::kUnread);
  std::string even(5, '\0');
  source->ReadPiecesAt(kBegin, 2, 1, std::as_writable_bytes(std::span(even)));
  EXPECT_EQ(even, "acegi");
  EXPECT_EQ(source->verdict(), Verdict::kRight);
}

TEST(Verified, PassesPiecesOnThatAreElsewhere) {
  Reports reports;
  const auto source = Verified(kData, {.crc32 = kCrc}, reports, true);
  std::string marks(3, '\0');
  source->ReadPiecesAt(0, 1, 1, std::as_writable_bytes(std::span(marks)));
  EXPECT_EQ(marks, "<<<");
  source->ReadPiecesAt(0, 1, 1, {});
  EXPECT_EQ(source->verdict(), Verdict::kUnread);
}

TEST(Verified, ReadsNothingTwiceInSequentialOrder) {
  Reports reports;
  const auto origin = std::make_shared<CountingSource>(kData);
  const auto source = MakeVerified({origin, 0, 10}, {.crc32 = kCrc}, {}, "w", reports.Verify());
  ReadString(*source, 0, 4);
  ReadString(*source, 4, 6);
  EXPECT_EQ(source->verdict(), Verdict::kRight);
  EXPECT_EQ(origin->count, 10U);
}

TEST(Verified, ReadsOutOfOrderBytesOnceMore) {
  Reports reports;
  const auto origin = std::make_shared<CountingSource>(kData);
  const auto source = MakeVerified({origin, 0, 10}, {.crc32 = kCrc}, {}, "w", reports.Verify());
  ReadString(*source, 4, 6);
  ReadString(*source, 0, 4);
  EXPECT_EQ(source->verdict(), Verdict::kRight);
  EXPECT_EQ(origin->count, 16U);
}

// A source whose bytes from 4 on can be read once, and not a second time, but then again.
class FailingLater final : public MemorySource {
 public:
  using MemorySource::MemorySource;

  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    if (offset == 4 && early_reads++ == 1) Fail(EIO, "connection reset");
    MemorySource::ReadAt(offset, buffer);
  }

  mutable int early_reads = 0;
};

TEST(Verified, FailsNoReadBecauseAnotherOneCouldNotBeRepeated) {
  Reports reports;
  const auto origin = std::make_shared<FailingLater>(kData);
  const auto source = MakeVerified({origin, 0, 10}, {.crc32 = kCrc}, {}, "w", reports.Verify());
  ReadString(*source, 4, 6);
  EXPECT_EQ(ReadString(*source, 0, 4), "abcd");
  EXPECT_EQ(source->verdict(), Verdict::kUnread);
  ReadString(*source, 4, 6);
  EXPECT_EQ(source->verdict(), Verdict::kRight);
}

// A source whose second read of byte 4 waits until it is released.
class WaitingSource final : public MemorySource {
 public:
  using MemorySource::MemorySource;

  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    if (offset == 4 && early_reads++ == 1) {
      waits.count_down();
      goes_on.wait();
    }
    MemorySource::ReadAt(offset, buffer);
  }

  mutable std::atomic<int> early_reads = 0;
  mutable std::latch waits{1};
  mutable std::latch goes_on{1};
};

TEST(Verified, DoesNotBlockReadersWhileItReadsAgain) {
  Reports reports;
  const auto origin = std::make_shared<WaitingSource>(kData);
  const auto source = MakeVerified({origin, 0, 10}, {.crc32 = kCrc}, {}, "w", reports.Verify());
  ReadString(*source, 4, 2);
  {
    const std::jthread closes_the_gap([&] { ReadString(*source, 0, 4); });
    origin->waits.wait();
    EXPECT_EQ(ReadString(*source, 6, 4), "ghij");
    EXPECT_EQ(source->verdict(), Verdict::kUnread);
    origin->goes_on.count_down();
  }
  EXPECT_EQ(source->verdict(), Verdict::kRight);
}

TEST(Verified, TakesNoAccountOfAReadThatFailed) {
  Reports reports;
  const auto origin = std::make_shared<CountingSource>(kData);
  const auto source = MakeVerified({origin, 0, 10}, {.crc32 = kCrc}, {}, "w", reports.Verify());
  origin->fails = true;
  EXPECT_THAT([&] { ReadString(*source, 0, 10); }, FailsToRead("connection reset"));
  EXPECT_EQ(source->verdict(), Verdict::kUnread);
  origin->fails = false;
  ReadString(*source, 0, 10);
  EXPECT_EQ(source->verdict(), Verdict::kRight);
}

// Reads each second byte, from the second one on.
void ReadOddBytes(const ByteSource& source) {
  for (uint64_t i = 1; i < source.size(); i += 2) ReadString(source, i, 1);
}

TEST(Verified, ForgetsWhatLiesInTooManyPlacesUntilItIsReadInOrder) {
  Reports reports;
  const std::string bytes(10'000, 'x');
  const auto origin = std::make_shared<CountingSource>(bytes);
  const auto source =
      MakeVerified({origin, 0, bytes.size()}, {.crc32 = Crc32(bytes)}, {}, "w", reports.Verify());
  ReadOddBytes(*source);
  for (uint64_t i = 0; i < bytes.size(); i += 2) ReadString(*source, i, 1);
  EXPECT_EQ(source->verdict(), Verdict::kUnread);
  ReadString(*source, 0, bytes.size());
  EXPECT_EQ(source->verdict(), Verdict::kRight);
}

TEST(Verified, RemembersWhatLiesNearRatherThanWhatLiesFar) {
  Reports reports;
  const std::string bytes(10'000, 'x');
  const auto source = MakeVerified({std::make_shared<MemorySource>(bytes), 0, bytes.size()},
                                   {.crc32 = Crc32(bytes)}, {}, "w", reports.Verify());
  for (uint64_t i = 0; i < bytes.size(); i += 2) ReadString(*source, bytes.size() - 1 - i, 1);
  for (uint64_t i = 0; i < 2000; i += 2) ReadString(*source, i, 1);  // A thousand gaps.
  ReadString(*source, 2000, 8000);
  EXPECT_EQ(source->verdict(), Verdict::kRight);
}

// Lets `count` threads read all pieces of `length` bytes of `source`, in their order.
void ReadInThreads(const ByteSource& source, size_t length, int count) {
  std::atomic<uint64_t> next = 0;
  const auto read = [&] {
    while (true) {
      const uint64_t begin = next.fetch_add(length);
      if (begin >= source.size()) return;
      ReadString(source, begin, std::min<uint64_t>(length, source.size() - begin));
    }
  };
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) threads.emplace_back(read);
}

std::string ManyBytes() {
  std::string bytes;
  for (uint32_t i = 0; i < 300'000; ++i) bytes += static_cast<char>(i * 2654435761U >> 13U);
  return bytes;
}

TEST(Verified, TakesWhatSeveralThreadsReadABitOutOfOrder) {
  Reports reports;
  const std::string bytes = ManyBytes();
  const auto source = MakeVerified({std::make_shared<MemorySource>(bytes), 0, bytes.size()},
                                   {.crc32 = Crc32(bytes)}, {}, "w", reports.Verify());
  ReadInThreads(*source, 100, 4);
  EXPECT_EQ(source->verdict(), Verdict::kRight);
  EXPECT_THAT(reports.lines(), ElementsAre("memory: w: CRC32 matches"));
}

TEST(Verified, LogsOnceWhenSeveralThreadsReadAll) {
  Reports reports;
  const std::string bytes = ManyBytes();
  const auto source = MakeVerified({std::make_shared<MemorySource>(bytes), 0, bytes.size()},
                                   {.crc32 = Crc32(bytes) ^ 1U}, {}, "w", reports.Verify());
  {
    const auto read = [&] { ReadInThreads(*source, 1000, 2); };
    const std::jthread threads[] = {std::jthread(read), std::jthread(read)};
  }
  EXPECT_EQ(source->verdict(), Verdict::kWrong);
  EXPECT_EQ(reports.lines().size(), 1U);
}

constexpr const char* kWrongCrc =
    "tensor 'w': CRC32 mismatch (found 0xf15621ba, expected 0x3981703a)";

TEST(Verified, IsRefusedFromTheReadOnThatCompletesItIfThatIsEnforced) {
  Reports reports;
  const auto source = Verified("abcdefghiX", {.crc32 = kCrc}, reports, true);
  EXPECT_EQ(ReadString(*source, kBegin, 9), "abcdefghi");
  EXPECT_THAT([&] { ReadString(*source, kBegin + 9, 1); }, FailsToRead(kWrongCrc));
  EXPECT_THAT([&] { ReadString(*source, kBegin, 1); }, FailsToRead(kWrongCrc));
  EXPECT_THAT([&] { ReadString(*source, 0, 16); }, FailsToRead(kWrongCrc));
  EXPECT_THAT(reports.lines(), ElementsAre(std::string("memory: ") + kWrongCrc));
}

TEST(Verified, RefusesPiecesThatAreWrongIfThatIsEnforced) {
  Reports reports;
  const auto source = Verified("abcdefghiX", {.crc32 = kCrc}, reports, true);
  std::string bytes(10, '\0');
  const auto read = [&] {
    source->ReadPiecesAt(kBegin, 2, 2, std::as_writable_bytes(std::span(bytes)));
  };
  EXPECT_THAT(read, FailsToRead(kWrongCrc));
  EXPECT_THAT(read, FailsToRead(kWrongCrc));
}

TEST(Verified, RefusesNothingThatIsRight) {
  Reports reports;
  const auto source = Verified(kData, {.crc32 = kCrc}, reports, true);
  EXPECT_EQ(ReadString(*source, kBegin, 10), kData);
  EXPECT_EQ(ReadString(*source, kBegin, 10), kData);
}

TEST(Verified, RefusesNothingElseOfTheSource) {
  Reports reports;
  const auto source = Verified("abcdefghiX", {.crc32 = kCrc}, reports, true);
  EXPECT_THAT([&] { ReadString(*source, kBegin, 10); }, FailsToRead(kWrongCrc));
  EXPECT_EQ(ReadString(*source, 0, kBegin), "<<<");
  EXPECT_EQ(ReadString(*source, kBegin + 10, 3), ">>>");
}

TEST(Verified, DoesNotReadWhatItWillRefuse) {
  Reports reports;
  const auto origin = std::make_shared<CountingSource>(kData);
  const auto source = MakeVerified({origin, 0, 10}, {.crc32 = 1}, {}, "w", reports.Verify(true));
  constexpr const char* kWrong = "w: CRC32 mismatch (found 0x3981703a, expected 0x00000001)";
  EXPECT_THAT([&] { ReadString(*source, 0, 10); }, FailsToRead(kWrong));
  EXPECT_THAT([&] { ReadString(*source, 0, 10); }, FailsToRead(kWrong));
  EXPECT_EQ(origin->count, 10U);
}

TEST(Verified, MayBeCheckedTwice) {
  Reports reports;
  const auto outer = Verified(kData, {.crc32 = kCrc}, reports);
  const auto inner = MakeVerified({outer, kBegin + 2, 3}, {.crc32 = Crc32("cde")}, {}, "tensor 'v'",
                                  reports.Verify());
  ReadString(*inner, kBegin, 10);
  EXPECT_THAT(reports.lines(), ElementsAre("memory: tensor 'w': CRC32 matches",
                                           "memory: tensor 'v': CRC32 matches"));
}

// Sources on top of a verified source have its verdict.

TEST(VerifiedParts, ASliceKnows) {
  Reports reports;
  const auto source = Verified(kData, {.crc32 = kCrc}, reports);
  const Slice slice({source, kBegin, 10});
  ReadString(slice, 0, 10);
  EXPECT_EQ(slice.verdict(), Verdict::kRight);
}

TEST(VerifiedParts, ATransposedTensorKnows) {
  Reports reports;
  const auto source = Verified(kData, {.crc32 = kCrc}, reports);
  const View view{.dtype = Dtype::kUint8, .shape = {5, 2}, .stride = {1, 5}};
  const auto strided = MakeStrided({source, kBegin, 10}, view, nullptr);
  EXPECT_EQ(strided->verdict(), Verdict::kUnread);
  EXPECT_EQ(ReadString(*strided, 0, 10), "afbgchdiej");
  EXPECT_EQ(strided->verdict(), Verdict::kRight);
}

TEST(VerifiedParts, ADeflatedStreamKnowsIfItHasAHash) {
  const std::string deflated = Deflate(kData);
  const Extent data = {std::make_shared<MemorySource>(deflated), 0, deflated.size()};
  const Compressed compressed = {.coding = Coding::kDeflate, .data = data, .size = 10};
  const auto decoding = std::make_shared<Decoding>(
      std::make_shared<BlockCache>(), std::make_shared<ScratchSpace>(uint64_t{1} << 30U));
  const auto without = MakeDecompressed(compressed, 0, decoding);
  ReadString(*without, 0, 1);
  EXPECT_EQ(without->verdict(), Verdict::kNone);
  const auto right = MakeDecompressed(compressed, kCrc, decoding);
  EXPECT_EQ(right->verdict(), Verdict::kUnread);
  ReadString(*right, 0, 1);
  EXPECT_EQ(right->verdict(), Verdict::kRight);
  const auto wrong = MakeDecompressed(compressed, 1, decoding);
  EXPECT_THROW(ReadString(*wrong, 0, 1), Error);
  EXPECT_EQ(wrong->verdict(), Verdict::kWrong);
}

// A tensor in two pieces.
ByteSourcePtr Assembled(ByteSourcePtr first, ByteSourcePtr second) {
  return MakeAssembled(
      {20}, 1,
      {{.box = {.offsets = {0}, .sizes = {10}}, .data = {std::move(first), 3, 10}},
       {.box = {.offsets = {10}, .sizes = {10}}, .data = {std::move(second), 3, 10}}});
}

TEST(VerifiedParts, ATensorInPiecesIsRightIfAllAre) {
  Reports reports;
  const auto tensor = Assembled(Verified(kData, {.crc32 = kCrc}, reports),
                                Verified(kData, {.crc32 = kCrc}, reports));
  ReadString(*tensor, 0, 10);
  EXPECT_EQ(tensor->verdict(), Verdict::kUnread);
  ReadString(*tensor, 10, 10);
  EXPECT_EQ(tensor->verdict(), Verdict::kRight);
}

TEST(VerifiedParts, ATensorInPiecesIsWrongIfOneIs) {
  Reports reports;
  const auto tensor =
      Assembled(Verified(kData, {.crc32 = kCrc}, reports), Verified(kData, {.crc32 = 1}, reports));
  ReadString(*tensor, 10, 10);
  EXPECT_EQ(tensor->verdict(), Verdict::kWrong);
}

TEST(VerifiedParts, ATensorInPiecesIsUnknownIfOneIs) {
  Reports reports;
  const auto tensor = Assembled(Verified(kData, {.crc32 = kCrc}, reports), Between(kData).source);
  ReadString(*tensor, 0, 20);
  EXPECT_EQ(tensor->verdict(), Verdict::kNone);
}

}  // namespace
}  // namespace ckptfs
