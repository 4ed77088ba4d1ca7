#include "fs/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "parser/base/error.h"

namespace ckptfs {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr RateLimit::Clock::time_point kStart{seconds(1000)};

RateLimit FullAtTheStart() {
  RateLimit limit;
  for (uint64_t i = 0; i < RateLimit::kMostPerSecond; ++i) EXPECT_TRUE(limit.Admits(kStart));
  return limit;
}

TEST(RateLimit, StopsAfterTheMostPerSecond) {
  RateLimit limit = FullAtTheStart();
  EXPECT_FALSE(limit.Admits(kStart + milliseconds(999)));
}

TEST(RateLimit, BeginsAnewAfterASecond) {
  RateLimit limit = FullAtTheStart();
  EXPECT_TRUE(limit.Admits(kStart + seconds(1)));
}

TEST(RateLimit, ReportsTheNumberOfSuppressedMessagesOnce) {
  RateLimit limit = FullAtTheStart();
  EXPECT_FALSE(limit.Admits(kStart));
  EXPECT_FALSE(limit.Admits(kStart));
  EXPECT_EQ(limit.TakeDropped(kStart + milliseconds(999)), 0U);
  EXPECT_EQ(limit.TakeDropped(kStart + seconds(1)), 2U);
  EXPECT_EQ(limit.TakeDropped(kStart + seconds(2)), 0U);
}

// Runs `speak` with a log and returns what it wrote on standard error.
template <typename Function>
std::string OnStandardError(Function speak) {
  testing::internal::CaptureStderr();
  {
    Log log;
    speak(log);
  }
  return testing::internal::GetCapturedStderr();
}

TEST(Log, PrefixesMessagesWithTheProgram) {
  EXPECT_EQ(OnStandardError([](Log& log) { log.Error("m.pth: is {}", "damaged"); }),
            "ckptfs: m.pth: is damaged\n");
}

TEST(Log, MarksAWarning) {
  EXPECT_EQ(OnStandardError([](Log& log) { log.Warning("something is odd"); }),
            "ckptfs: warning: something is odd\n");
}

TEST(Log, CommandsNoTerminal) {
  EXPECT_EQ(OnStandardError([](Log& log) { log.Error("a\x1b[31m\nb"); }), "ckptfs: a?[31m?b\n");
}

TEST(Log, CutsALongMessageBetweenCharacters) {
  const std::string longest(4096, 'x');
  EXPECT_EQ(OnStandardError([&](Log& log) { log.Write(Log::Level::kError, longest); }),
            "ckptfs: " + longest + "\n");
  for (size_t before = 4080; before < 4096; ++before) {
    std::string text(before, 'x');
    for (int i = 0; i < 1000; ++i) text += "\xf0\x9f\x98\x80";
    const std::string line =
        OnStandardError([&](Log& log) { log.Write(Log::Level::kError, text); });
    EXPECT_LE(line.size(), std::string_view("ckptfs: \n").size() + 4096);
    EXPECT_GT(line.size(), 4085U);
    EXPECT_TRUE(line.ends_with("…\n"));
    EXPECT_EQ(line.find('?'), std::string::npos);
  }
}

TEST(Log, TakesBracesInATextForBraces) {
  EXPECT_EQ(OnStandardError([](Log& log) { log.Write(Log::Level::kError, "a {} b {x"); }),
            "ckptfs: a {} b {x\n");
}

TEST(Log, KeepsSilentAboutSuccess) {
  EXPECT_EQ(OnStandardError([](Log& log) { log.Info("mounted"); }), "");
}

TEST(Log, PrintsDebugMessagesOnRequest) {
  EXPECT_EQ(OnStandardError([](Log& log) {
              log.Notice("this is not asked for");
              log.SetLevel(Log::Level::kNotice);
              log.Notice("tensor 'w': CRC32 matches");
              log.Info("mounted");
            }),
            "ckptfs: tensor 'w': CRC32 matches\n");
}

TEST(Log, LetsNoNumberOfNoticesKeepAnErrorOut) {
  const std::string said = OnStandardError([](Log& log) {
    log.SetLevel(Log::Level::kNotice);
    for (uint64_t i = 0; i < 2 * RateLimit::kMostPerSecond; ++i) log.Notice("this is right");
    log.Error("that is wrong");
  });
  constexpr int64_t kLines = 2 * RateLimit::kMostPerSecond + 1;
  EXPECT_EQ(std::ranges::count(said, '\n'), kLines);
  EXPECT_THAT(said, testing::EndsWith("ckptfs: that is wrong\n"));
}

TEST(Log, AppendsToAFile) {
  std::string name = std::filesystem::temp_directory_path() / "ckptfs-log-XXXXXX";
  ASSERT_NE(::mkdtemp(name.data()), nullptr);
  const std::string path = name + "/log";
  for (int i = 0; i < 2; ++i) {
    const std::string said = OnStandardError([&](Log& log) {
      log.OpenFile(path);
      log.Error("m.pth: is {}", "corrupt");
      log.LeaveTerminal();
      log.Warning("a\x1b[31m\nb");
    });
    EXPECT_EQ(said, "ckptfs: m.pth: is corrupt\n");
  }
  std::ifstream file(path);
  std::string lines;
  for (std::string line; std::getline(file, line);) {
    constexpr size_t kDate = sizeof "2026-01-01T00:00:00Z" - 1;
    EXPECT_EQ(line.at(kDate - 1), 'Z');
    lines += line.substr(kDate) + '\n';
  }
  const auto process = fmt::format(" ckptfs[{}]: ", ::getpid());
  const auto twice = process + "m.pth: is corrupt\n" + process + "warning: a?[31m?b\n";
  EXPECT_EQ(lines, twice + twice);
  EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms(0600));
  std::filesystem::remove_all(name);
}

TEST(Log, RefusesAFileThatCannotBeOpened) {
  Log log;
  EXPECT_THAT([&] { log.OpenFile("/"); },
              testing::ThrowsMessage<Error>("/: cannot open the log file: Is a directory"));
}

TEST(Log, LogsAtTheRequestedLevel) {
  EXPECT_EQ(OnStandardError([](Log& log) {
              log.SetLevel(Log::Level::kInfo);
              log.Info("mounted");
            }),
            "ckptfs: mounted\n");
}

}  // namespace
}  // namespace ckptfs
