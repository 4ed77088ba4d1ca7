#include "fs/mountpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "parser/error.h"

namespace ckptfs {
namespace {

using testing::ThrowsMessage;

// A directory of our own, which goes away at the end.
class MountpointTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = std::filesystem::temp_directory_path() / "ckptfs-mountpoint-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    path_ = std::filesystem::canonical(name);
  }
  void TearDown() override { std::filesystem::remove_all(path_); }

  std::string path_;
};

TEST_F(MountpointTest, IsAnEmptyDirectory) { EXPECT_EQ(CheckedMountpoint(path_, false), path_); }

TEST_F(MountpointTest, IsToldWithoutDotsAndLinks) {
  std::filesystem::create_directory(path_ + "/real");
  std::filesystem::create_symlink("real", path_ + "/link");
  EXPECT_EQ(CheckedMountpoint(path_ + "/./real/../link/", false), path_ + "/real");
}

TEST_F(MountpointTest, MustExist) {
  EXPECT_THAT([&] { CheckedMountpoint(path_ + "/x", false); },
              ThrowsMessage<Error>(path_ + "/x: the mount point does not exist"));
}

TEST_F(MountpointTest, IsNotAFile) {
  std::ofstream(path_ + "/file") << "x";
  EXPECT_THAT([&] { CheckedMountpoint(path_ + "/file", false); },
              ThrowsMessage<Error>(path_ + "/file: the mount point is not a directory"));
}

TEST_F(MountpointTest, IsNotBelowAFile) {
  std::ofstream(path_ + "/file") << "x";
  EXPECT_THAT([&] { CheckedMountpoint(path_ + "/file/x", false); },
              ThrowsMessage<Error>(path_ + "/file/x: cannot use the mount point: Not a directory"));
}

TEST_F(MountpointTest, IsNotFull) {
  std::ofstream(path_ + "/file") << "x";
  EXPECT_THAT([&] { CheckedMountpoint(path_, false); },
              ThrowsMessage<Error>(
                  path_ + ": the mount point is not empty; to cover its files, use -o nonempty"));
}

TEST_F(MountpointTest, MayBeFullIfItMayBeCovered) {
  std::ofstream(path_ + "/file") << "x";
  EXPECT_EQ(CheckedMountpoint(path_, true), path_);
}

TEST_F(MountpointTest, IsNotAnotherMount) {
  EXPECT_THAT([] { CheckedMountpoint("/proc", false); },
              ThrowsMessage<Error>(
                  "/proc: something is mounted there already; to cover it, use -o nonempty"));
}

}  // namespace
}  // namespace ckptfs
