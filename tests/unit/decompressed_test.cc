#include "parser/layer/decompressed.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/io/simple_sources.h"
#include "tests/support/compressors.h"
#include "tests/support/errors.h"
#include "tests/support/file_limits.h"
#include "tests/support/sources.h"
#include "tests/support/zip_writer.h"

namespace ckptfs {
namespace {

using testing::AllOf;
using testing::Property;
using testing::StartsWith;
using testing::Throws;

constexpr size_t kMiB = size_t{1} << 20;

// Bytes with half of the entropy, as those of weights. All are prefixes of one text.
std::string Weights(size_t size) {
  std::mt19937 random(1);
  std::string text(size, '\0');
  for (size_t i = 0; i + 4 <= size; i += 4) {
    const auto value = static_cast<uint32_t>(random());
    text[i] = static_cast<char>(value);
    text[i + 1] = static_cast<char>(value >> 8 & 15);
  }
  return text;
}

// A source that counts its reads and fails the first ones.
class FailingSource final : public MemorySource {
 public:
  FailingSource(std::string bytes, int failures)
      : MemorySource(std::move(bytes)), failures_(failures) {}

  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    if (reads_++ < failures_) Fail(EIO, "connection reset");
    MemorySource::ReadAt(offset, buffer);
  }

  int reads() const { return reads_; }

 private:
  const int failures_;
  mutable std::atomic<int> reads_ = 0;
};

std::shared_ptr<Decoding> NewDecoding(uint64_t scratch = uint64_t{1} << 30) {
  return std::make_shared<Decoding>(std::make_shared<BlockCache>(),
                                    std::make_shared<ScratchSpace>(scratch));
}

ByteSourcePtr Decompressed(const Compressed& coded, uint32_t crc = 0) {
  return MakeDecompressed(coded, crc, NewDecoding());
}

ByteSourcePtr Inflated(const std::string& deflated, uint64_t size, uint32_t crc = 0) {
  return Decompressed(CompressedOf(Coding::kDeflate, deflated, size), crc);
}

auto FailsLike(int code, const std::string& message) {
  return Throws<Error>(
      AllOf(Property(&Error::code, code), Property(&Error::what, StartsWith(message))));
}

// The call: reads `length` bytes at `offset`.
auto Reading(const ByteSourcePtr& source, uint64_t offset = 0, size_t length = 1) {
  return [=] { ReadString(*source, offset, length); };
}

// Whether `source` has what `text` has, wherever it is read.
testing::AssertionResult IsAtRandom(const ByteSource& source, const std::string& text,
                                    unsigned seed, int reads = 60) {
  std::mt19937_64 random(seed);
  for (int i = 0; i < reads; ++i) {
    const size_t offset = random() % text.size();
    const size_t most = i % 4 == 0 ? 3 * kMiB : 5000;
    const size_t length = std::min(random() % most, text.size() - offset);
    if (ReadString(source, offset, length) == std::string_view(text).substr(offset, length)) {
      continue;
    }
    return testing::AssertionFailure() << "not at " << offset << ", " << length << " bytes";
  }
  return testing::AssertionSuccess();
}

// Behaviour that does not depend on the compression method.
class DecompressedByAny : public testing::TestWithParam<Coding> {
 protected:
  Compressed CompressedFrom(const std::string& text) const {
    return CompressedOf(GetParam(), Compress(GetParam(), text), text.size());
  }
};

INSTANTIATE_TEST_SUITE_P(Codings, DecompressedByAny,
                         testing::Values(Coding::kDeflate, Coding::kBzip2, Coding::kLzma),
                         [](const auto& coding) { return std::string(NameOf(coding.param)); });

TEST_P(DecompressedByAny, ReadsAStreamInTheMiddleOfItsSource) {
  const auto source = Decompressed(CompressedFrom("abcd"), Crc("abcd"));
  EXPECT_EQ(source->size(), 4U);
  EXPECT_EQ(ReadString(*source, 1, 3), "bcd");
  EXPECT_EQ(ReadString(*source, 4, 0), "");
}

TEST_P(DecompressedByAny, ReadsInOrder) {
  const std::string text = Weights(5 * kMiB + 77);
  const auto source = Decompressed(CompressedFrom(text), Crc(text));
  std::string read;
  while (read.size() < text.size()) {
    read += ReadString(*source, read.size(), std::min<size_t>(131072, text.size() - read.size()));
  }
  EXPECT_TRUE(read == text);
  EXPECT_EQ(source->verdict(), Verdict::kRight);
}

TEST_P(DecompressedByAny, ReadsAllAtOnce) {
  const std::string text = Weights(3 * kMiB);
  const auto source = Decompressed(CompressedFrom(text), Crc(text));
  EXPECT_TRUE(ReadString(*source, 0, text.size()) == text);
  EXPECT_TRUE(ReadString(*source, 0, text.size()) == text);
}

TEST_P(DecompressedByAny, ReadsAnywhere) {
  const std::string text = Weights(7 * kMiB + 1);
  EXPECT_TRUE(IsAtRandom(*Decompressed(CompressedFrom(text), Crc(text)), text, 1));
}

TEST_P(DecompressedByAny, ReadsFromTheEndToTheBeginning) {
  const std::string text = Weights(4 * kMiB + 100);
  const auto source = Decompressed(CompressedFrom(text), Crc(text));
  EXPECT_EQ(ReadString(*source, text.size() - 50, 50), text.substr(text.size() - 50));
  EXPECT_EQ(ReadString(*source, 2 * kMiB, 50), text.substr(2 * kMiB, 50));
  EXPECT_EQ(ReadString(*source, 0, 50), text.substr(0, 50));
}

TEST_P(DecompressedByAny, SeveralThreadsReadAtOnce) {
  const std::string text = Weights(6 * kMiB);
  const auto source = Decompressed(CompressedFrom(text), Crc(text));
  const auto read = [&](unsigned seed) {
    return [&, seed] { EXPECT_TRUE(IsAtRandom(*source, text, seed, 20)); };
  };
  const std::jthread threads[] = {std::jthread(read(1)), std::jthread(read(2)),
                                  std::jthread(read(3)), std::jthread(read(4))};
}

TEST_P(DecompressedByAny, ReadsWithoutATemporaryFile) {
  const std::string text = Weights(4 * kMiB + 1);
  const TemporaryFilesIn nowhere("/nonexistent");
  EXPECT_TRUE(IsAtRandom(*Decompressed(CompressedFrom(text), Crc(text)), text, 1, 20));
}

TEST_P(DecompressedByAny, ReadsWithATemporaryFileThatCannotGrow) {
  const std::string text = Weights(4 * kMiB + 1);
  const auto source = Decompressed(CompressedFrom(text), Crc(text));
  const FilesUpTo limit(GetParam() == Coding::kDeflate ? 60'000 : 1'200'000);
  EXPECT_TRUE(IsAtRandom(*source, text, 1, 20));
}

TEST_P(DecompressedByAny, ReadsZerosThatTakeVeryLittleSpace) {
  std::string zeros;
  zeros.resize(10'000'000);
  const auto source = Decompressed(CompressedFrom(zeros), Crc(zeros));
  EXPECT_EQ(ReadString(*source, 9'999'990, 10), std::string(10, '\0'));
  EXPECT_EQ(source->verdict(), Verdict::kRight);
}

TEST_P(DecompressedByAny, LeavesNoFileBehindEvenWhileItIsInUse) {
  const std::filesystem::path folder =
      testing::TempDir() + "decoded-" + std::string(NameOf(GetParam()));
  std::filesystem::create_directory(folder);
  const TemporaryFilesIn there(folder);
  const std::string text = Weights(3 * kMiB);
  const auto source = Decompressed(CompressedFrom(text));
  EXPECT_TRUE(ReadString(*source, 0, text.size()) == text);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::filesystem::remove_all(folder);
}

TEST_P(DecompressedByAny, TriesAgainIfItsSourceHasFailed) {
  const std::string compressed = Compress(GetParam(), "abcd");
  const auto origin = std::make_shared<FailingSource>(compressed, 1);
  const auto source = Decompressed(
      {.coding = GetParam(), .data = {origin, 0, origin->size()}, .size = 4}, Crc("abcd"));
  EXPECT_THAT(Reading(source), Fails(EIO, "connection reset"));
  EXPECT_EQ(source->verdict(), Verdict::kUnread);
  EXPECT_EQ(ReadString(*source, 0, 4), "abcd");
}

TEST_P(DecompressedByAny, GoesOnWithTheFirstPassAfterItsSourceHasFailed) {
  const std::string text = Weights(3 * kMiB);
  const auto failing = std::make_shared<FailingSource>(Compress(GetParam(), text), 12);
  const auto source = Decompressed(
      {.coding = GetParam(), .data = {failing, 0, failing->size()}, .size = text.size()},
      Crc(text));
  int failures = 0;
  for (int i = 0; i < 30 && failing->reads() < 12; ++i) {
    try {
      ReadString(*source, 0, text.size());
    } catch (const Error&) {
      ++failures;
    }
  }
  EXPECT_GE(failures, 10);
  EXPECT_TRUE(ReadString(*source, 0, text.size()) == text);
  EXPECT_EQ(source->verdict(), Verdict::kRight);
}

TEST_P(DecompressedByAny, DecodesNothingBeforeItIsRead) {
  const auto origin = std::make_shared<FailingSource>(Compress(GetParam(), "abcd"), 0);
  const auto source =
      Decompressed({.coding = GetParam(), .data = {origin, 0, origin->size()}, .size = 4});
  EXPECT_EQ(ReadString(*source, 2, 0), "");
  EXPECT_EQ(origin->reads(), 0);
}

TEST_P(DecompressedByAny, GivesTheLastBytesOnlyIfAllAreRight) {
  const std::string text = Weights(3 * kMiB);
  const auto source = Decompressed(CompressedFrom(text), Crc(text) + 1);
  EXPECT_EQ(ReadString(*source, 2 * kMiB - 10, 10), text.substr(2 * kMiB - 10, 10));
  EXPECT_EQ(source->verdict(), Verdict::kUnread);
  EXPECT_THROW(ReadString(*source, 2 * kMiB, 1), Error);
  EXPECT_EQ(source->verdict(), Verdict::kWrong);
  EXPECT_THROW(ReadString(*source, 0, 1), Error);
}

TEST_P(DecompressedByAny, ReturnsTheBytesBeforeTheCorruption) {
  const std::string text = Weights(4 * kMiB);
  Compressed coded = CompressedFrom(text);
  coded.data.length = coded.data.length * 7 / 8;
  const auto source = Decompressed(coded, Crc(text));
  EXPECT_THROW(ReadString(*source, text.size() - 1, 1), Error);
  EXPECT_EQ(source->verdict(), Verdict::kWrong);
  EXPECT_TRUE(ReadString(*source, 0, 3 * kMiB + kMiB / 8) == text.substr(0, 3 * kMiB + kMiB / 8));
}

TEST_P(DecompressedByAny, RefusesAStreamThatIsCutOff) {
  const std::string compressed = Compress(GetParam(), "abcd");
  const auto source =
      Decompressed(CompressedOf(GetParam(), compressed.substr(0, compressed.size() - 1), 4));
  EXPECT_THAT(Reading(source),
              FailsLike(EIO, fmt::format("{} stream at byte {}: unexpected end of data after ",
                                         NameOf(GetParam()), 5 + compressed.size())));
  EXPECT_THAT(
      Reading(Decompressed(CompressedOf(GetParam(), "", 4))),
      Fails(EIO, fmt::format("{} stream at byte 6: unexpected end of data after 0 of 4 bytes",
                             NameOf(GetParam()))));
}

TEST_P(DecompressedByAny, RefusesBytesAfterTheStream) {
  const std::string compressed = Compress(GetParam(), "abcd");
  EXPECT_THAT(Reading(Decompressed(CompressedOf(GetParam(), compressed + "xyz", 4))),
              Fails(EIO, fmt::format("{} stream at byte {}: 3 extra bytes at its end",
                                     NameOf(GetParam()), 6 + compressed.size())));
}

TEST_P(DecompressedByAny, RefusesBytesOfAnotherCrc) {
  const std::string compressed = Compress(GetParam(), "abcd");
  EXPECT_THAT(
      Reading(Decompressed(CompressedOf(GetParam(), compressed, 4), 0x12345678)),
      Fails(EIO,
            fmt::format(
                "{} stream at byte {}: CRC-32 mismatch (found 0xed82cd11, expected 0x12345678)",
                NameOf(GetParam()), 6 + compressed.size())));
}

TEST(Decompressed, RefusesAStreamThatEndsEarly) {
  EXPECT_THAT(Reading(Inflated(Deflate("abcd"), 5)),
              Fails(EIO, "deflate stream at byte 12: ends after 4 of 5 bytes"));
  const std::string bzip2 = Bzip2("abcd");
  EXPECT_THAT(Reading(Decompressed(CompressedOf(Coding::kBzip2, bzip2, 5))),
              Fails(EIO, fmt::format("bzip2 stream at byte {}: ends after 4 of 5 bytes",
                                     6 + bzip2.size())));
}

TEST(Decompressed, AMarkerThatComesEarlyIsDamage) {
  const auto source = Decompressed(CompressedOf(Coding::kLzma, Lzma("abcd"), 5));
  EXPECT_THAT(Reading(source, 4), FailsLike(EIO, "LZMA stream at byte "));
  EXPECT_EQ(ReadString(*source, 0, 4), "abcd");
}

TEST(Decompressed, RefusesAStreamThatGoesOn) {
  EXPECT_THAT(
      Reading(Inflated(Deflate("abcd"), 3)),
      Fails(EIO, "deflate stream at byte 12: decompresses to more than the expected 3 bytes"));
  const std::string bzip2 = Bzip2("abcd");
  EXPECT_THAT(Reading(Decompressed(CompressedOf(Coding::kBzip2, bzip2, 3))),
              FailsLike(EIO, "bzip2 stream at byte "));
  EXPECT_THAT(Reading(Decompressed(CompressedOf(Coding::kLzma, Lzma("abcd"), 3))),
              FailsLike(EIO, "LZMA stream at byte "));
}

TEST(Decompressed, RemembersThatTheStreamIsCorrupt) {
  const auto origin = std::make_shared<FailingSource>("\7", 0);
  const auto source =
      Decompressed({.coding = Coding::kDeflate, .data = {origin, 0, 1}, .size = 4}, 1);
  constexpr auto* kDamage = "deflate stream at byte 1: invalid block type";
  EXPECT_THAT(Reading(source), Fails(EIO, kDamage));
  EXPECT_THAT(Reading(source), Fails(EIO, kDamage));
  EXPECT_EQ(origin->reads(), 1);
  EXPECT_EQ(source->verdict(), Verdict::kWrong);
}

TEST(Decompressed, HasNoVerdictWithoutAHash) {
  const auto source = Inflated(Deflate("abcd"), 4);
  ReadString(*source, 0, 4);
  EXPECT_EQ(source->verdict(), Verdict::kNone);
}

TEST(Decompressed, ReadsBlocksThatAreStored) {
  const std::string text = Weights(3 * kMiB + 9);
  EXPECT_TRUE(IsAtRandom(*Inflated(Deflate(text, {.level = 0}), text.size(), Crc(text)), text, 1));
}

TEST(Decompressed, ReadsBlocksWithFixedCodes) {
  const std::string text = Weights(3 * kMiB + 9);
  EXPECT_TRUE(IsAtRandom(
      *Inflated(Deflate(text, {.level = 1, .is_fixed = true}), text.size(), Crc(text)), text, 1));
}

TEST(Decompressed, ReadsAStreamThatWasFlushedAtEachOpportunity) {
  const std::string text = Weights(2 * kMiB + 9);
  EXPECT_TRUE(IsAtRandom(
      *Inflated(Deflate(text, {.level = 1, .flush_after = 100}), text.size(), Crc(text)), text, 1));
}

TEST(Decompressed, ReadsOneHugeBlock) {
  const std::string text = Weights(3 * kMiB + 9);
  EXPECT_TRUE(IsAtRandom(*Inflated(DeflateInOneBlock(text), text.size(), Crc(text)), text, 1, 20));
}

// It reads at most a tenth of the stream to decode one of many blocks again.
TEST(Decompressed, DecodesLittleForALittle) {
  const std::string text = Weights(24 * kMiB);
  const auto origin = std::make_shared<FailingSource>(Deflate(text, {.level = 1}), 0);
  const auto source = Decompressed(
      {.coding = Coding::kDeflate, .data = {origin, 0, origin->size()}, .size = text.size()});
  ReadString(*source, text.size() - 1, 1);
  const int all = origin->reads();
  EXPECT_EQ(ReadString(*source, 13 * kMiB + 5, 10), text.substr(13 * kMiB + 5, 10));
  EXPECT_LT(origin->reads() - all, all / 10);
}

TEST(Decompressed, DecodesNothingTwiceInOrder) {
  const std::string text = Weights(8 * kMiB);
  const auto origin = std::make_shared<FailingSource>(Deflate(text, {.level = 1}), 0);
  const auto make = [&] {
    return Decompressed(
        {.coding = Coding::kDeflate, .data = {origin, 0, origin->size()}, .size = text.size()});
  };
  ReadString(*make(), 0, text.size());
  const int at_once = origin->reads();
  const auto source = make();
  for (size_t offset = 0; offset < text.size(); offset += 131072) {
    ReadString(*source, offset, 131072);
  }
  EXPECT_EQ(origin->reads(), 2 * at_once);
}

// A source in which a byte changes while it is read.
class Changing final : public MemorySource {
 public:
  using MemorySource::MemorySource;

  void ReadAt(uint64_t offset, std::span<std::byte> buffer) const override {
    MemorySource::ReadAt(offset, buffer);
    if (!is_changed || offset > kPlace || kPlace - offset >= buffer.size()) return;
    buffer[kPlace - offset] ^= std::byte{1};
  }

  bool is_changed = false;

 private:
  static constexpr uint64_t kPlace = 1'500'000;
};

TEST(Decompressed, WhatWasDecodedAgainIsComparedWithTheFirstPass) {
  const std::string text = Weights(3 * kMiB);
  const std::string stored = Deflate(text, {.level = 0});
  const auto origin = std::make_shared<Changing>(stored);
  const auto source = Decompressed(
      {.coding = Coding::kDeflate, .data = {origin, 0, stored.size()}, .size = text.size()},
      Crc(text));
  ReadString(*source, 0, text.size());
  origin->is_changed = true;
  EXPECT_THAT(
      Reading(source, kMiB + 5),
      Fails(
          EIO,
          "deflate stream at byte 0: bytes from 1048576 on differ from an earlier decompression"));
  EXPECT_EQ(ReadString(*source, 5, 5), text.substr(5, 5));
  origin->is_changed = false;
  EXPECT_EQ(ReadString(*source, kMiB + 5, 5), text.substr(kMiB + 5, 5));
}

TEST(Decompressed, ACorruptBlockOfBzip2IsRejectedFromItsBeginning) {
  const std::string text = Weights(3 * kMiB);
  std::string compressed = Bzip2(text);
  compressed[compressed.size() / 2] ^= 1;
  const auto source =
      Decompressed(CompressedOf(Coding::kBzip2, compressed, text.size()), Crc(text));
  EXPECT_THROW(ReadString(*source, text.size() - 1, 1), Error);
  EXPECT_EQ(source->verdict(), Verdict::kWrong);
  EXPECT_EQ(ReadString(*source, 1'390'000, 10), text.substr(1'390'000, 10));
  EXPECT_THAT(Reading(source, 1'600'000), FailsLike(EIO, "bzip2 stream at byte "));
}

TEST(Decompressed, ReadsLzmaWithoutAMarkerAtItsEnd) {
  const std::string text = Weights(3 * kMiB);
  const auto source =
      Decompressed(CompressedOf(Coding::kLzma, Lzma(text, false), text.size()), Crc(text));
  EXPECT_TRUE(ReadString(*source, 0, text.size()) == text);
  EXPECT_EQ(source->verdict(), Verdict::kRight);
}

TEST(Decompressed, RefusesPropertiesThatLzmaHasNot) {
  std::string compressed = Lzma("abcd");
  compressed[2] = 6;
  EXPECT_THAT(Reading(Decompressed(CompressedOf(Coding::kLzma, compressed, 4))),
              Fails(EIO, "LZMA stream at byte 6: its properties have 6 bytes, but LZMA has 5"));
  compressed = Lzma("abcd");
  compressed[4] = '\xff';
  EXPECT_THAT(Reading(Decompressed(CompressedOf(Coding::kLzma, compressed, 4))),
              Fails(EIO, "LZMA stream at byte 6: invalid properties"));
}

TEST(Decompressed, RefusesADictionaryThatIsTooLarge) {
  std::string compressed = Lzma("abcd");
  compressed[8] = '\x7f';
  EXPECT_EQ(ReadString(*Decompressed(CompressedOf(Coding::kLzma, compressed, 4)), 0, 4), "abcd");
  EXPECT_THAT(Reading(Decompressed(CompressedOf(Coding::kLzma, compressed, uint64_t{1} << 30))),
              Fails(EIO,
                    "LZMA stream at byte 6: needs a dictionary of 1073741824 bytes, but at most "
                    "67108864 are used"));
}

TEST(Decompressed, ManyMembersShareTheMemoryForDecoders) {
  const std::string text = Weights(5 * kMiB / 2);
  const Compressed coded = CompressedOf(Coding::kBzip2, Bzip2(text), text.size());
  const auto decoding = NewDecoding();
  std::vector<ByteSourcePtr> sources;
  for (int i = 0; i < 12; ++i) {
    sources.push_back(MakeDecompressed(coded, 0, decoding));
    EXPECT_EQ(ReadString(*sources.back(), 10, 10), text.substr(10, 10));
  }
  EXPECT_LE(decoding->decompressors.used(), size_t{32} << 20);
  EXPECT_EQ(ReadString(*sources.front(), 2 * kMiB, 10), text.substr(2 * kMiB, 10));
  sources.clear();
  EXPECT_EQ(decoding->decompressors.used(), 0U);
}

}  // namespace
}  // namespace ckptfs
