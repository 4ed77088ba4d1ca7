// Links in the directory of a checkpoint. The tests need root, to change the owner of files.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "parser/base/error.h"
#include "parser/scheme.h"
#include "tests/support/errors.h"
#include "tests/support/sources.h"

namespace ckptfs {

extern const Scheme file_scheme;

namespace {

// Opens a local file or folder without the context that OpenSource adds to errors.
Source OpenLocal(const std::string& uri, const SourceOptions& options) {
  return std::get<Source>(file_scheme.open(ParseLocation(uri), options));
}

namespace fs = std::filesystem;

constexpr uid_t kStranger = 65534;

auto IsOfAStranger() {
  return Fails(EACCES,
               "symbolic link not followed: it belongs neither to the mounting user nor to the "
               "owner of its target; to follow it, use -o follow_links");
}

auto LeadsOut() {
  return Fails(EACCES,
               "symbolic link not followed: it leads out of the checkpoint's directory, which "
               "allow_other does not permit; to follow it, use -o follow_links");
}

// A directory of a stranger's, "checkpoint", beside a file of ours, "secret".
class LinksTest : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    fs::create_directories(checkpoint_);
    Write(base_ / "secret", "secret");
    Give(checkpoint_);
  }
  void TearDown() override { fs::remove_all(base_); }

  static void Write(const fs::path& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }
  static void Give(const fs::path& path) {
    ASSERT_EQ(::lchown(path.c_str(), kStranger, kStranger), 0);
  }
  static void Link(const fs::path& target, const fs::path& link, bool is_given = true) {
    fs::create_symlink(target, link);
    if (is_given) Give(link);
  }

  std::string Read(const std::string& name, LinkPolicy policy = LinkPolicy::kOwned) const {
    const auto folder = OpenLocal(checkpoint_, {.links = policy}).folder;
    const auto file = folder->Open(name);
    return ReadString(*file, 0, file->size());
  }

  const fs::path base_ = testing::TempDir() + "links." +
                         testing::UnitTest::GetInstance()->current_test_info()->name() +
                         std::to_string(::getpid());
  const fs::path checkpoint_ = base_ / "checkpoint";
};

TEST_F(LinksTest, OfAStrangerToAFileOfOursIsRefused) {
  Link(base_ / "secret", checkpoint_ / "absolute");
  Link("../secret", checkpoint_ / "relative");
  EXPECT_THAT([&] { Read("absolute"); }, IsOfAStranger());
  EXPECT_THAT([&] { Read("relative"); }, IsOfAStranger());
}

TEST_F(LinksTest, OfAStrangerToAFileOfOursInTheDirectoryIsRefused) {
  Write(checkpoint_ / "ours", "secret");
  Link("ours", checkpoint_ / "link");
  EXPECT_THAT([&] { Read("link"); }, IsOfAStranger());
}

TEST_F(LinksTest, OfAStrangerToAFileOfTheSameStrangerIsFollowed) {
  Write(base_ / "theirs", "theirs");
  Give(base_ / "theirs");
  Link("../theirs", checkpoint_ / "link");
  EXPECT_EQ(Read("link"), "theirs");
}

TEST_F(LinksTest, OfOursIsFollowed) {
  Link("../secret", checkpoint_ / "link", false);
  EXPECT_EQ(Read("link"), "secret");
}

TEST_F(LinksTest, OfOursToALinkOfAStrangerIsRefused) {
  Link("../secret", checkpoint_ / "theirs");
  Link("theirs", checkpoint_ / "link", false);
  EXPECT_THAT([&] { Read("link"); }, IsOfAStranger());
}

TEST_F(LinksTest, OnTheWayToTheTargetCountsToo) {
  fs::create_directory(base_ / "ours");
  Write(base_ / "ours" / "file", "secret");
  Link("../ours", checkpoint_ / "directory");
  Link("directory/file", checkpoint_ / "link", false);
  EXPECT_THAT([&] { Read("link"); }, IsOfAStranger());
}

TEST_F(LinksTest, IsFollowedIfAllAre) {
  Link("../secret", checkpoint_ / "link");
  EXPECT_EQ(Read("link", LinkPolicy::kAll), "secret");
}

TEST_F(LinksTest, OutOfTheDirectoryIsRefusedIfOthersMayRead) {
  Link("../secret", checkpoint_ / "link", false);
  Link("/etc/passwd", checkpoint_ / "absolute", false);
  EXPECT_THAT([&] { Read("link", LinkPolicy::kInside); }, LeadsOut());
  EXPECT_THAT([&] { Read("absolute", LinkPolicy::kInside); }, LeadsOut());
}

TEST_F(LinksTest, WithinTheDirectoryIsFollowedEvenIfOthersMayRead) {
  fs::create_directories(checkpoint_ / "a" / "b");
  Write(checkpoint_ / "file", "inside");
  Link("file", checkpoint_ / "link", false);
  Link(checkpoint_ / "file", checkpoint_ / "absolute", false);
  Link("../checkpoint/file", checkpoint_ / "out and in", false);
  Link("../../file", checkpoint_ / "a" / "b" / "up", false);
  EXPECT_EQ(Read("link", LinkPolicy::kInside), "inside");
  EXPECT_EQ(Read("absolute", LinkPolicy::kInside), "inside");
  EXPECT_EQ(Read("out and in", LinkPolicy::kInside), "inside");
  const auto folder = OpenLocal(checkpoint_, {.links = LinkPolicy::kInside}).folder;
  EXPECT_EQ(ReadString(*folder->OpenFolder("a")->OpenFolder("b")->Open("up"), 0, 6), "inside");
}

TEST_F(LinksTest, OfTheCacheOfHuggingFaceIsFollowedEvenIfOthersMayRead) {
  const fs::path cache = base_ / "models--x--y";
  const fs::path snapshot = cache / "snapshots" / "0123abcd";
  fs::create_directories(cache / "blobs");
  fs::create_directories(snapshot / "below");
  Write(cache / "blobs" / "cafe", "weights");
  Link("../../blobs/cafe", snapshot / "model", false);
  Link("../../../blobs/cafe", snapshot / "below" / "model", false);
  const auto folder = OpenLocal(snapshot, {.links = LinkPolicy::kInside}).folder;
  EXPECT_EQ(ReadString(*folder->Open("model"), 0, 7), "weights");
  EXPECT_EQ(ReadString(*folder->OpenFolder("below")->Open("model"), 0, 7), "weights");
}

TEST_F(LinksTest, LikeThoseOfTheCacheOfHuggingFaceIsRefusedIfOthersMayRead) {
  const fs::path cache = base_ / "models--x--y";
  const fs::path snapshot = cache / "snapshots" / "0123abcd";
  fs::create_directories(snapshot);
  fs::create_directories(cache / "blobs");
  Write(cache / "blobs" / "ours", "weights");
  Link("../../blobs/ours", snapshot / "theirs");
  Link("../../secret", cache / "blobs" / "link", false);
  Link("../../blobs/link", snapshot / "chain", false);
  Link("../../../secret", snapshot / "up", false);
  Link("../../blobs/..", snapshot / "dots", false);
  const auto folder = OpenLocal(snapshot, {.links = LinkPolicy::kInside}).folder;
  EXPECT_THAT([&] { folder->Open("theirs"); }, IsOfAStranger());
  EXPECT_THAT([&] { folder->Open("chain"); }, LeadsOut());
  EXPECT_THAT([&] { folder->Open("up"); }, LeadsOut());
  EXPECT_THAT([&] { folder->Open("dots"); }, Fails(EISDIR, "is a directory"));
  // Without the directory "snapshots" it is no such cache.
  fs::create_directories(base_ / "blobs");
  fs::create_directories(checkpoint_ / "a");
  Write(base_ / "blobs" / "file", "secret");
  Link("../../blobs/file", checkpoint_ / "a" / "link", false);
  const auto other = OpenLocal(checkpoint_ / "a", {.links = LinkPolicy::kInside}).folder;
  EXPECT_THAT([&] { other->Open("link"); }, LeadsOut());
}

TEST_F(LinksTest, InACircleIsRefused) {
  Link("b", checkpoint_ / "a", false);
  Link("a", checkpoint_ / "b", false);
  EXPECT_THAT([&] { Read("a"); }, Fails(ELOOP, "cannot open: Too many levels of symbolic links"));
}

TEST_F(LinksTest, ToADeviceOrAPipeIsRefusedWithoutOpeningIt) {
  Link("/dev/null", checkpoint_ / "device", false);
  ASSERT_EQ(::mkfifo((base_ / "pipe").c_str(), 0600), 0);
  Link("../pipe", checkpoint_ / "link", false);
  // The pipe was not opened: its writer still waits for a reader.
  EXPECT_THAT([&] { Read("device"); }, Fails(EINVAL, "not a regular file"));
  EXPECT_THAT([&] { Read("link"); }, Fails(EINVAL, "not a regular file"));
  EXPECT_EQ(::open((base_ / "pipe").c_str(), O_WRONLY | O_NONBLOCK), -1);
  EXPECT_EQ(errno, ENXIO);
}

TEST_F(LinksTest, ThatTheUserNamesIsFollowedWhoeverOwnsIt) {
  Link("../secret", checkpoint_ / "link");
  const Source source = OpenLocal(checkpoint_ / "link", {.links = LinkPolicy::kInside});
  EXPECT_EQ(ReadString(*source.file, 0, 6), "secret");
}

TEST_F(LinksTest, InPlaceOfADirectoryDoesNotLeadAFileThatIsOpenedAgainElsewhere) {
  // More than are kept open.
  constexpr int kMany = 1001;
  fs::create_directory(checkpoint_ / "inner");
  fs::create_directory(base_ / "other");
  const auto folder = OpenLocal(checkpoint_, {}).folder->OpenFolder("inner");
  ByteSourcePtr last;
  std::vector<ByteSourcePtr> files;
  for (int i = 0; i < kMany; ++i) {
    Write(checkpoint_ / "inner" / std::to_string(i), "old");
    files.push_back(folder->Open(std::to_string(i)));
  }
  EXPECT_EQ(ReadString(*files.back(), 0, 3), "old");
  fs::rename(checkpoint_ / "inner", base_ / "moved");
  Link("../moved", checkpoint_ / "inner");
  EXPECT_THAT([&] { ReadString(*files.back(), 0, 3); }, IsOfAStranger());
}

TEST_F(LinksTest, HaveThePermissionsOfTheirTargets) {
  using Permissions = std::vector<std::pair<mode_t, gid_t>>;
  fs::permissions(checkpoint_, fs::perms(0710));
  Write(checkpoint_ / "file", "");
  fs::permissions(checkpoint_ / "file", fs::perms(0640));
  ASSERT_EQ(::chown((checkpoint_ / "file").c_str(), 0, 7), 0);
  Link("file", checkpoint_ / "link", false);
  Permissions told;
  SourceOptions options;
  options.opened = [&](mode_t mode, gid_t group) { told.emplace_back(mode, group); };
  OpenLocal(checkpoint_ / "link", options);
  EXPECT_EQ(told, (Permissions{{0440, 7}}));
  OpenLocal(checkpoint_, options).folder->Open("link");
  EXPECT_EQ(told, (Permissions{{0440, 7}, {0440, kStranger}, {0440, 7}}));
}

}  // namespace
}  // namespace ckptfs
