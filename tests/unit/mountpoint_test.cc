#include "fs/mountpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "parser/base/error.h"

namespace ckptfs {
namespace {

using testing::ThrowsMessage;

// A temporary directory, which is removed at the end.
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

TEST_F(MountpointTest, IsAnEmptyDirectory) { EXPECT_EQ(Mountpoint(path_, false).path(), path_); }

TEST_F(MountpointTest, IsPrintedWithoutDotsAndLinks) {
  std::filesystem::create_directory(path_ + "/real");
  std::filesystem::create_symlink("real", path_ + "/link");
  EXPECT_EQ(Mountpoint(path_ + "/./real/../link/", false).path(), path_ + "/real");
}

TEST_F(MountpointTest, IsMadeIfItsParentExistsAndRemovedAtTheEnd) {
  {
    Mountpoint mountpoint(path_ + "/x/", false);
    EXPECT_EQ(mountpoint.path(), path_ + "/x");
    EXPECT_FALSE(std::filesystem::exists(path_ + "/x"));
    mountpoint.Prepare();
    EXPECT_TRUE(std::filesystem::is_directory(path_ + "/x"));
    const Mountpoint moved(std::move(mountpoint));
  }
  EXPECT_FALSE(std::filesystem::exists(path_ + "/x"));
}

TEST_F(MountpointTest, IsNotMadeWithoutItsParent) {
  EXPECT_THAT(
      [&] { Mountpoint(path_ + "/x/y", false); },
      ThrowsMessage<Error>(path_ + "/x/y: the mount point and its parent directory do not exist"));
}

TEST_F(MountpointTest, IsNotALinkToNothing) {
  std::filesystem::create_symlink("nothing", path_ + "/link");
  EXPECT_THAT([&] { Mountpoint(path_ + "/link", false); },
              ThrowsMessage<Error>(path_ + "/link: the mount point does not exist"));
}

TEST_F(MountpointTest, ThatWasThereStays) {
  { Mountpoint(path_, false).Prepare(); }
  EXPECT_TRUE(std::filesystem::exists(path_));
}

TEST_F(MountpointTest, IsCreatedAgainIfItWasRemoved) {
  std::filesystem::create_directory(path_ + "/x");
  Mountpoint mountpoint(path_ + "/x", false);
  std::filesystem::remove(path_ + "/x");
  mountpoint.Prepare();
  EXPECT_TRUE(std::filesystem::exists(path_ + "/x"));
}

TEST_F(MountpointTest, IsTheOneThatWasChecked) {
  std::filesystem::create_directory(path_ + "/x");
  std::filesystem::create_directory(path_ + "/other");
  Mountpoint mountpoint(path_ + "/x", false);
  std::filesystem::rename(path_ + "/x", path_ + "/away");
  std::filesystem::create_symlink("other", path_ + "/x");
  EXPECT_THAT([&] { mountpoint.Prepare(); },
              ThrowsMessage<Error>(path_ + "/x: the mount point was replaced"));
}

TEST_F(MountpointTest, IsNotAFile) {
  std::ofstream(path_ + "/file") << "x";
  EXPECT_THAT([&] { Mountpoint(path_ + "/file", false); },
              ThrowsMessage<Error>(path_ + "/file: the mount point is not a directory"));
}

TEST_F(MountpointTest, IsNotBelowAFile) {
  std::ofstream(path_ + "/file") << "x";
  EXPECT_THAT([&] { Mountpoint(path_ + "/file/x", false); },
              ThrowsMessage<Error>(path_ + "/file/x: cannot use the mount point: Not a directory"));
}

TEST_F(MountpointTest, IsNotFull) {
  std::ofstream(path_ + "/file") << "x";
  EXPECT_THAT([&] { Mountpoint(path_, false); },
              ThrowsMessage<Error>(
                  path_ + ": the mount point is not empty; to cover its files, use -o nonempty"));
}

TEST_F(MountpointTest, MayBeFullIfItMayBeCovered) {
  std::ofstream(path_ + "/file") << "x";
  EXPECT_EQ(Mountpoint(path_, true).path(), path_);
}

TEST_F(MountpointTest, IsNotAnotherMount) {
  EXPECT_THAT([] { Mountpoint("/proc", false); },
              ThrowsMessage<Error>(
                  "/proc: something is mounted there already; to cover it, use -o nonempty"));
}

}  // namespace
}  // namespace ckptfs
