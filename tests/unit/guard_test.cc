#include "fs/guard.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <new>
#include <stdexcept>
#include <string>

#include "parser/base/error.h"

namespace ckptfs {
namespace {

int GuardedStatus(Step step, bool no_fail, int error) {
  testing::internal::CaptureStderr();
  Log log;
  const int status = Guard(log, step, no_fail, [&]() -> int { Fail(error, "m.pth: is bad"); });
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(said, status == 0 ? "ckptfs: warning: m.pth: is bad; nothing is mounted (nofail)\n"
                              : "ckptfs: m.pth: is bad\n");
  return status;
}

TEST(Guard, NoFailIsForACheckpointThatIsNotAvailable) {
  for (const Step step : {Step::kOpen, Step::kParse}) {
    for (const int error :
         {ENOENT, ENOTDIR, ENODEV, ENOMEDIUM, ENOTCONN, EACCES, EPERM, ETIMEDOUT, ECONNREFUSED,
          ECONNRESET, EHOSTUNREACH, ENETUNREACH, ESTALE, EREMOTEIO, EPROTO}) {
      EXPECT_EQ(GuardedStatus(step, true, error), 0) << error;
      EXPECT_NE(GuardedStatus(step, false, error), 0) << error;
    }
  }
  EXPECT_EQ(GuardedStatus(Step::kOpen, true, EIO), 0);
}

TEST(Guard, NoFailIsForNothingElse) {
  constexpr int kCorrupt = static_cast<int>(ExitCode::kCorrupt);
  constexpr int kSource = static_cast<int>(ExitCode::kSource);
  EXPECT_EQ(GuardedStatus(Step::kParse, true, EBADMSG), kCorrupt);
  EXPECT_EQ(GuardedStatus(Step::kParse, true, EIO), kCorrupt);
  EXPECT_EQ(GuardedStatus(Step::kParse, true, EKEYREJECTED), kSource);
  EXPECT_EQ(GuardedStatus(Step::kOpen, true, EINVAL), kSource);
  EXPECT_EQ(GuardedStatus(Step::kOpen, true, ENOTSUP), kSource);
  EXPECT_EQ(GuardedStatus(Step::kSecret, true, ENOENT), kSource);
  EXPECT_EQ(GuardedStatus(Step::kMountpoint, true, ENOENT),
            static_cast<int>(ExitCode::kMountpoint));
  EXPECT_EQ(GuardedStatus(Step::kMount, true, ENOENT), static_cast<int>(ExitCode::kFuse));
  EXPECT_EQ(GuardedStatus(Step::kOpen, true, ENOMEM), static_cast<int>(ExitCode::kUnexpected));
}

TEST(Guard, TakesAServerThatFailsWhileParsingForASourceThatIsNotAvailable) {
  for (const int error : {EREMOTEIO, EPROTO, ETIMEDOUT, ECONNRESET}) {
    EXPECT_EQ(GuardedStatus(Step::kParse, false, error), static_cast<int>(ExitCode::kSource));
  }
}

TEST(Guard, ReturnsWhatTheBodyReturns) {
  Log log;
  EXPECT_EQ(Guard(log, Step::kServe, false, [] { return 42; }), 42);
}

TEST(Guard, ReportsOtherExceptions) {
  testing::internal::CaptureStderr();
  Log log;
  EXPECT_EQ(Guard(log, Step::kParse, true, []() -> int { throw std::bad_alloc(); }), 1);
  EXPECT_EQ(Guard(log, Step::kParse, true, []() -> int { throw std::out_of_range("at"); }), 1);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "ckptfs: out of memory\nckptfs: internal error, please report it: at\n");
}

}  // namespace
}  // namespace ckptfs
