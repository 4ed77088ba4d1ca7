#include "parser/layer/inflated.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "parser/error.h"
#include "parser/layer/memory.h"
#include "tests/support/sources.h"
#include "tests/support/zip_writer.h"

namespace ckptfs {
namespace {

using testing::AllOf;
using testing::Property;
using testing::StrEq;
using testing::Throws;

// Text that is longer than any buffer between, and that does not repeat itself soon.
std::string LongText() {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += std::to_string(i * 7919 % 100'003) + " ";
  return text;
}

Extent ExtentOf(std::string bytes) {
  const uint64_t length = bytes.size();
  return {.source = std::make_shared<MemorySource>(std::move(bytes)), .length = length};
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

// A call that throws an Error of that code and message.
auto Fails(int code, const char* message) {
  return Throws<Error>(AllOf(Property(&Error::code, code), Property(&Error::what, StrEq(message))));
}

// The call: reads the first byte of what `deflated` should decode to.
auto ReadingOf(const std::string& deflated, uint64_t size, uint32_t crc = 0) {
  return [=] { ReadString(*MakeInflated(ExtentOf(deflated), size, crc), 0, 1); };
}

TEST(Inflated, ReadsAnyRange) {
  const std::string text = LongText();
  const auto source = MakeInflated(ExtentOf(Deflate(text)), text.size(), Crc(text));
  EXPECT_EQ(source->size(), text.size());
  EXPECT_EQ(ReadString(*source, 500'000, 10), text.substr(500'000, 10));
  EXPECT_EQ(ReadString(*source, 0, text.size()), text);
  EXPECT_EQ(ReadString(*source, text.size(), 0), "");
}

TEST(Inflated, ReadsAStreamInTheMiddleOfItsSource) {
  const std::string deflated = Deflate("abcd");
  const auto origin = std::make_shared<MemorySource>("xxx" + deflated + "yyy");
  const auto source = MakeInflated({origin, 3, deflated.size()}, 4, Crc("abcd"));
  EXPECT_EQ(ReadString(*source, 1, 3), "bcd");
}

TEST(Inflated, ReadsZerosThatTakeVeryLittleSpace) {
  std::string zeros;
  zeros.resize(10'000'000);
  const auto source = MakeInflated(ExtentOf(Deflate(zeros)), zeros.size(), Crc(zeros));
  EXPECT_EQ(ReadString(*source, 9'999'990, 10), std::string(10, '\0'));
}

TEST(Inflated, DecodesNothingBeforeItIsRead) {
  const auto origin = std::make_shared<FailingSource>(Deflate("abcd"), 0);
  const auto source = MakeInflated({origin, 0, origin->size()}, 4, 0);
  EXPECT_EQ(ReadString(*source, 2, 0), "");
  EXPECT_EQ(origin->reads(), 0);
}

TEST(Inflated, DecodesOnceForAllWhoRead) {
  const auto origin = std::make_shared<FailingSource>(Deflate("abcd"), 0);
  const auto source = MakeInflated({origin, 0, origin->size()}, 4, Crc("abcd"));
  {
    const auto read = [&] { EXPECT_EQ(ReadString(*source, 0, 4), "abcd"); };
    const std::jthread threads[] = {std::jthread(read), std::jthread(read), std::jthread(read)};
  }
  EXPECT_EQ(ReadString(*source, 0, 4), "abcd");
  EXPECT_EQ(origin->reads(), 1);
}

TEST(Inflated, TriesAgainIfItsSourceHasFailed) {
  const auto origin = std::make_shared<FailingSource>(Deflate("abcd"), 1);
  const auto source = MakeInflated({origin, 0, origin->size()}, 4, 0);
  EXPECT_THAT([&] { ReadString(*source, 0, 4); }, Fails(EIO, "connection reset"));
  EXPECT_EQ(ReadString(*source, 0, 4), "abcd");
}

TEST(Inflated, RemembersThatTheStreamIsDamaged) {
  const auto origin = std::make_shared<FailingSource>("\7", 0);
  const auto source = MakeInflated({origin, 0, 1}, 4, 0);
  constexpr auto* kDamage = "deflate stream at byte 1: invalid block type";
  EXPECT_THAT([&] { ReadString(*source, 0, 4); }, Fails(EIO, kDamage));
  EXPECT_THAT([&] { ReadString(*source, 0, 4); }, Fails(EIO, kDamage));
  EXPECT_EQ(origin->reads(), 1);
}

TEST(Inflated, RefusesAStreamThatIsCutOff) {
  const std::string deflated = Deflate("abcd");
  EXPECT_THAT(ReadingOf(deflated.substr(0, deflated.size() - 1), 4),
              Fails(EIO, "deflate stream at byte 5: is cut off after 4 of 4 bytes"));
  EXPECT_THAT(ReadingOf("", 4),
              Fails(EIO, "deflate stream at byte 0: is cut off after 0 of 4 bytes"));
}

TEST(Inflated, RefusesAStreamThatEndsEarly) {
  EXPECT_THAT(ReadingOf(Deflate("abcd"), 5),
              Fails(EIO, "deflate stream at byte 6: ends after 4 of 5 bytes"));
}

TEST(Inflated, RefusesAStreamThatGoesOn) {
  EXPECT_THAT(
      ReadingOf(Deflate("abcd"), 3),
      Fails(EIO, "deflate stream at byte 6: goes on after the 3 bytes that it should decode to"));
}

TEST(Inflated, RefusesBytesAfterTheStream) {
  EXPECT_THAT(ReadingOf(Deflate("abcd") + "xyz", 4),
              Fails(EIO, "deflate stream at byte 6: ends, but 3 bytes of it are left"));
}

TEST(Inflated, RefusesBytesOfAnotherCrc) {
  EXPECT_THAT(ReadingOf(Deflate("abcd"), 4, 0x12345678),
              Fails(EIO,
                    "deflate stream at byte 6: CRC-32 of what it decodes to is 0xed82cd11, but "
                    "should be 0x12345678"));
}

// Where temporary files go, for one test.
class TemporaryFilesIn {
 public:
  explicit TemporaryFilesIn(const std::string& directory) {
    if (const char* const before = std::getenv("TMPDIR")) before_ = before;
    ::setenv("TMPDIR", directory.c_str(), 1);
  }
  TemporaryFilesIn(const TemporaryFilesIn&) = delete;
  TemporaryFilesIn& operator=(const TemporaryFilesIn&) = delete;
  ~TemporaryFilesIn() {
    before_.empty() ? ::unsetenv("TMPDIR") : ::setenv("TMPDIR", before_.c_str(), 1);
  }

 private:
  std::string before_;
};

TEST(Inflated, LeavesNoFileBehindEvenWhileItIsInUse) {
  const std::filesystem::path folder = testing::TempDir() + "inflated";
  std::filesystem::create_directory(folder);
  const TemporaryFilesIn there(folder);
  const auto source = MakeInflated(ExtentOf(Deflate("abcd")), 4, 0);
  EXPECT_EQ(ReadString(*source, 0, 4), "abcd");
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::filesystem::remove_all(folder);
}

TEST(Inflated, TellsThatThereIsNoPlaceForItsFileAndTriesAgain) {
  const auto source = MakeInflated(ExtentOf(Deflate("abcd")), 4, 0);
  {
    const TemporaryFilesIn nowhere("/nonexistent");
    EXPECT_THAT(
        [&] { ReadString(*source, 0, 4); },
        Fails(ENOENT, "cannot make a temporary file in /nonexistent: No such file or directory"));
  }
  EXPECT_EQ(ReadString(*source, 0, 4), "abcd");
}

// Lets no file grow beyond `size` bytes, for one test.
class FilesUpTo {
 public:
  explicit FilesUpTo(rlim_t size) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {.rlim_cur = size, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  FilesUpTo(const FilesUpTo&) = delete;
  FilesUpTo& operator=(const FilesUpTo&) = delete;
  ~FilesUpTo() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*const handler_)(int);
  rlimit before_ = {};
};

TEST(Inflated, TellsThatThereIsNoRoomForItsFileAndTriesAgain) {
  const std::string text = LongText();
  const auto source = MakeInflated(ExtentOf(Deflate(text)), text.size(), Crc(text));
  const auto read = [&] { ReadString(*source, 0, 4); };
  {
    const FilesUpTo limit(300'000);
    EXPECT_THAT(
        read, Fails(EFBIG, "cannot write the inflated bytes to a temporary file: File too large"));
  }
  EXPECT_EQ(ReadString(*source, 0, text.size()), text);
}

}  // namespace
}  // namespace ckptfs
