#include "parser/layer/disk_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <latch>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "parser/base/error.h"
#include "parser/base/fd.h"
#include "parser/layer/disk_cache/segment.h"
#include "tests/support/file_limits.h"

namespace ckptfs {
namespace {

namespace fs = std::filesystem;
using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using testing::ThrowsMessage;

constexpr uint64_t kMuch = uint64_t{1} << 40U;
constexpr const char* kIdentity = "https://example.org/model.pth \"v1\"";

// Where things are in a segment.
constexpr uint64_t kIndex = 4096;
constexpr uint64_t kBlocks = 8192;

// The bytes of block `number` of an object of `size` bytes with this identity.
std::string BlockOf(std::string_view identity, uint64_t size, uint64_t number) {
  std::string bytes(BlockLength(size, number), '\0');
  uint64_t state = std::hash<std::string_view>()(identity) ^ (number + 1) * 0x9E3779B97F4A7C15U;
  for (char& byte : bytes) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    byte = static_cast<char>(state >> 56U);
  }
  return bytes;
}

// An object of a cache, with known bytes.
class KnownObject {
 public:
  KnownObject(const DiskCache& cache, std::string identity, uint64_t size)
      : identity_(std::move(identity)), size_(size), object_(cache.Open(identity_, size)) {}

  void Write(uint64_t first, size_t count) const {
    std::vector<std::string> bytes;
    for (size_t i = 0; i < count; ++i) bytes.push_back(BlockOf(identity_, size_, first + i));
    std::vector<std::span<const std::byte>> blocks;
    blocks.reserve(count);
    for (const std::string& block : bytes) blocks.push_back(std::as_bytes(std::span(block)));
    object_->Write(first, blocks);
  }

  // Returns the numbers of the cached blocks. All of them must be valid.
  std::vector<uint64_t> Read(uint64_t first, size_t count) const {
    std::vector<std::string> bytes;
    for (size_t i = 0; i < count; ++i) bytes.emplace_back(BlockLength(size_, first + i), '?');
    std::vector<std::span<std::byte>> blocks;
    blocks.reserve(count);
    for (std::string& block : bytes) blocks.push_back(std::as_writable_bytes(std::span(block)));
    const auto is_cached = object_->Read(first, blocks);
    EXPECT_EQ(is_cached.size(), count);
    std::vector<uint64_t> numbers;
    for (size_t i = 0; i < count; ++i) {
      if (!is_cached[i]) continue;
      EXPECT_TRUE(bytes[i] == BlockOf(identity_, size_, first + i)) << "block " << first + i;
      numbers.push_back(first + i);
    }
    return numbers;
  }

  std::vector<uint64_t> ReadAll() const { return Read(0, BlockCount(size_)); }
  void WriteAll() const { Write(0, BlockCount(size_)); }

 private:
  std::string identity_;
  uint64_t size_;
  DiskObjectPtr object_;
};

class DiskCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    parent_ = testing::TempDir() + "disk-cache-XXXXXX";
    ASSERT_NE(::mkdtemp(parent_.data()), nullptr);
    directory_ = parent_ + "/cache";
  }
  void TearDown() override { fs::remove_all(parent_); }

  KnownObject Open(const char* identity = kIdentity, uint64_t size = 4 * kBlockSize) const {
    return {DiskCache(directory_, kMuch), identity, size};
  }

  std::vector<fs::path> Segments() const {
    std::vector<fs::path> paths;
    for (const auto& entry : fs::recursive_directory_iterator(directory_)) {
      if (entry.is_regular_file() && entry.path().filename() != "lock") paths.push_back(entry);
    }
    std::ranges::sort(paths);
    return paths;
  }

  // The only one that is there.
  fs::path Segment() const {
    const auto segments = Segments();
    EXPECT_THAT(segments, SizeIs(1));
    return segments.at(0);
  }

  void Overwrite(uint64_t offset, std::string_view bytes) const {
    std::fstream file(Segment(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(offset));
    file << bytes;
    ASSERT_TRUE(file.flush());
  }

  void Flip(uint64_t offset) const {
    std::fstream file(Segment(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    const int byte = file.get();
    ASSERT_GE(byte, 0);
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(static_cast<char>(byte ^ 0x10));
    ASSERT_TRUE(file.flush());
  }

  static mode_t ModeOf(const fs::path& path) {
    struct stat status = {};
    EXPECT_EQ(::stat(path.c_str(), &status), 0);
    return status.st_mode & 07777U;
  }

  // The disk space of all segments, in bytes.
  uint64_t Used() const {
    uint64_t used = 0;
    for (const auto& path : Segments()) {
      struct stat status = {};
      if (::stat(path.c_str(), &status) == 0) used += static_cast<uint64_t>(status.st_blocks) * 512;
    }
    return used;
  }

  // Gives user 1234 the right to write, by the access control list called `name`.
  static bool SetList(const std::string& path, const char* name) {
    struct Entry {
      uint16_t tag;
      uint16_t rights;
      uint32_t id;
    };
    constexpr uint32_t kNobody = 0xffffffff;
    constexpr std::array<Entry, 5> kEntries = {{{0x01, 7, kNobody},  // The owner.
                                                {0x02, 7, 1234},     // A user.
                                                {0x04, 7, kNobody},  // The group.
                                                {0x10, 7, kNobody},  // The mask.
                                                {0x20, 0, kNobody}}};
    std::array<std::byte, sizeof(uint32_t) + sizeof kEntries> list = {std::byte{2}};
    std::memcpy(&list[sizeof(uint32_t)], kEntries.data(), sizeof kEntries);
    return ::setxattr(path.c_str(), name, list.data(), list.size(), 0) == 0;
  }

  std::string parent_;
  std::string directory_;
};

TEST_F(DiskCacheTest, HasNothingOfAnObjectThatItDoesNotKnow) {
  EXPECT_THAT(Open().ReadAll(), IsEmpty());
  EXPECT_THAT(Segments(), IsEmpty());
}

TEST_F(DiskCacheTest, HasTheBlocksThatWereWrittenAndNoOthers) {
  const auto object = Open();
  object.Write(1, 2);
  EXPECT_THAT(object.ReadAll(), ElementsAre(1, 2));
}

TEST_F(DiskCacheTest, HasThemAtTheNextMount) {
  Open().WriteAll();
  EXPECT_THAT(Open().ReadAll(), ElementsAre(0, 1, 2, 3));
}

TEST_F(DiskCacheTest, HasNothingOfAnotherVersion) {
  Open().WriteAll();
  EXPECT_THAT(Open("https://example.org/model.pth \"v2\"").ReadAll(), IsEmpty());
}

TEST_F(DiskCacheTest, HasNothingOfAnotherLength) {
  Open().WriteAll();
  EXPECT_THAT(Open(kIdentity, 4 * kBlockSize - 1).ReadAll(), IsEmpty());
}

TEST_F(DiskCacheTest, KeepsTheEndOfAnObjectThatIsNoMultipleOfABlock) {
  const auto object = Open(kIdentity, 2 * kBlockSize + 1);
  object.WriteAll();
  EXPECT_THAT(object.ReadAll(), ElementsAre(0, 1, 2));
}

TEST_F(DiskCacheTest, KeepsAnObjectOfOneByte) {
  const auto object = Open(kIdentity, 1);
  object.WriteAll();
  EXPECT_THAT(object.ReadAll(), ElementsAre(0));
}

TEST_F(DiskCacheTest, KeepsARunAcrossTwoSegments) {
  const auto object = Open(kIdentity, kMuch);
  object.Write(3 * kSegmentBlocks - 2, 4);
  EXPECT_THAT(object.Read(3 * kSegmentBlocks - 3, 6),
              ElementsAre(3 * kSegmentBlocks - 2, 3 * kSegmentBlocks - 1, 3 * kSegmentBlocks,
                          3 * kSegmentBlocks + 1));
  EXPECT_THAT(Segments(), SizeIs(2));
}

TEST_F(DiskCacheTest, TakesNoSpaceForMissingBlocks) {
  Open(kIdentity, kMuch).Write(kSegmentBlocks - 1, 1);
  struct stat status = {};
  ASSERT_EQ(::stat(Segment().c_str(), &status), 0);
  EXPECT_LE(status.st_blocks * 512, 65536);
}

TEST_F(DiskCacheTest, NamesFilesByAHash) {
  Open().WriteAll();
  const auto name = fs::relative(Segment(), directory_).string();
  EXPECT_THAT(name, testing::MatchesRegex("[0-9a-f]{2}/[0-9a-f]{64}-0"));
}

TEST_F(DiskCacheTest, DoesNotHaveABlockWithAFlippedBit) {
  Open().WriteAll();
  Flip(kBlocks + 2 * kBlockSize + 100);
  EXPECT_THAT(Open().ReadAll(), ElementsAre(0, 1, 3));
}

TEST_F(DiskCacheTest, DoesNotHaveABlockWhoseChecksumHasAFlippedBit) {
  Open().WriteAll();
  Flip(kIndex + 8);
  EXPECT_THAT(Open().ReadAll(), ElementsAre(0, 2, 3));
}

TEST_F(DiskCacheTest, DoesNotHaveABlockWithoutAChecksum) {
  Open().WriteAll();
  Overwrite(kIndex + 16, std::string(8, '\0'));
  EXPECT_THAT(Open().ReadAll(), ElementsAre(0, 1, 3));
}

TEST_F(DiskCacheTest, DoesNotHaveABlockThatWasLostAfterItsChecksumWasWritten) {
  Open().WriteAll();
  Overwrite(kBlocks, std::string(kBlockSize, '\0'));
  EXPECT_THAT(Open().ReadAll(), ElementsAre(1, 2, 3));
}

TEST_F(DiskCacheTest, DoesNotTakeOneBlockForAnother) {
  Open().WriteAll();
  std::ifstream file(Segment(), std::ios::binary);
  const std::string all(std::istreambuf_iterator<char>(file), {});
  Overwrite(kBlocks, all.substr(kBlocks + kBlockSize, kBlockSize));
  Overwrite(kIndex, all.substr(kIndex + 8, 8));
  EXPECT_THAT(Open().ReadAll(), ElementsAre(1, 2, 3));
}

TEST_F(DiskCacheTest, HasNothingOfAFileThatIsOneOfAnotherObject) {
  Open("another").WriteAll();
  const auto other = Segment();
  Open().WriteAll();
  const auto segments = Segments();
  const auto ours = segments.at(0) == other ? segments.at(1) : segments.at(0);
  fs::copy_file(other, ours, fs::copy_options::overwrite_existing);
  EXPECT_THAT(Open().ReadAll(), IsEmpty());
}

TEST_F(DiskCacheTest, KeepsBlocksAgainWhereAnotherFileWas) {
  Open().WriteAll();
  Overwrite(0, "something else");
  EXPECT_THAT(Open().ReadAll(), IsEmpty());
  Open().WriteAll();
  EXPECT_THAT(Open().ReadAll(), ElementsAre(0, 1, 2, 3));
}

TEST_F(DiskCacheTest, ReplacesACorruptBlock) {
  Open().WriteAll();
  Flip(kBlocks);
  Open().Write(0, 1);
  EXPECT_THAT(Open().ReadAll(), ElementsAre(0, 1, 2, 3));
}

TEST_F(DiskCacheTest, HasTheBlocksBeforeTheEndOfATruncatedFile) {
  Open().WriteAll();
  fs::resize_file(Segment(), kBlocks + 2 * kBlockSize + 5);
  EXPECT_THAT(Open().ReadAll(), ElementsAre(0, 1));
}

TEST_F(DiskCacheTest, HasNothingOfAFileThatEndsInItsIndex) {
  Open().WriteAll();
  fs::resize_file(Segment(), kIndex + 12);
  EXPECT_THAT(Open().ReadAll(), IsEmpty());
}

TEST_F(DiskCacheTest, KeepsBlocksInAFileThatWasMadeAndNotBegun) {
  Open().WriteAll();
  fs::resize_file(Segment(), 0);
  Open().Write(3, 1);
  EXPECT_THAT(Open().ReadAll(), ElementsAre(3));
}

TEST_F(DiskCacheTest, DoesNotFollowASymbolicLinkToAFile) {
  Open().WriteAll();
  const auto segment = Segment();
  fs::rename(segment, parent_ + "/elsewhere");
  fs::create_symlink(parent_ + "/elsewhere", segment);
  EXPECT_THAT(Open().ReadAll(), IsEmpty());
  Open().Write(0, 1);
  EXPECT_FALSE(fs::is_symlink(segment));
  EXPECT_THAT(Open().ReadAll(), ElementsAre(0));
}

TEST_F(DiskCacheTest, DoesNotFollowASymbolicLinkToADirectory) {
  Open().WriteAll();
  const auto below = Segment().parent_path();
  fs::rename(below, parent_ + "/elsewhere");
  fs::create_directory_symlink(parent_ + "/elsewhere", below);
  EXPECT_THAT(Open().ReadAll(), IsEmpty());
}

TEST_F(DiskCacheTest, DoesNotWaitForAPipe) {
  Open().WriteAll();
  const auto segment = Segment();
  fs::remove(segment);
  ASSERT_EQ(::mkfifo(segment.c_str(), 0600), 0);
  EXPECT_THAT(Open().ReadAll(), IsEmpty());
}

TEST_F(DiskCacheTest, DoesNotUseAFileThatHasASecondName) {
  Open().WriteAll();
  fs::create_hard_link(Segment(), parent_ + "/second");
  EXPECT_THAT(Open().ReadAll(), IsEmpty());
}

TEST_F(DiskCacheTest, CreatesAPrivateDirectory) {
  Open().WriteAll();
  EXPECT_EQ(ModeOf(directory_), 0700U);
  EXPECT_EQ(ModeOf(Segment().parent_path()), 0700U);
  EXPECT_EQ(ModeOf(Segment()), 0600U);
}

TEST_F(DiskCacheTest, SharesWithAGroupIfItsDirectoryDoes) {
  fs::create_directory(directory_);
  ASSERT_EQ(::chmod(directory_.c_str(), 02770), 0);
  Open().WriteAll();
  EXPECT_EQ(ModeOf(Segment().parent_path()), 02770U);
  EXPECT_EQ(ModeOf(Segment()), 0660U);
}

TEST_F(DiskCacheTest, DoesNotUseAFileThatAGroupMayWriteToIfItsDirectoryIsNotShared) {
  Open().WriteAll();
  fs::permissions(Segment(), fs::perms::group_write, fs::perm_options::add);
  EXPECT_THAT(Open().ReadAll(), IsEmpty());
}

TEST_F(DiskCacheTest, DoesNotUseAFileThatEverybodyMayWriteTo) {
  fs::create_directory(directory_);
  ASSERT_EQ(::chmod(directory_.c_str(), 02770), 0);
  Open().WriteAll();
  fs::permissions(Segment(), fs::perms::others_write, fs::perm_options::add);
  EXPECT_THAT(Open().ReadAll(), IsEmpty());
}

TEST_F(DiskCacheTest, RefusesADirectoryThatEverybodyMayWriteIn) {
  fs::create_directory(directory_);
  ASSERT_EQ(::chmod(directory_.c_str(), 01777), 0);
  EXPECT_THAT(
      [&] { DiskCache(directory_, kMuch); },
      ThrowsMessage<Error>("cache directory " + directory_ + ": is world-writable (mode 1777)"));
}

TEST_F(DiskCacheTest, ReportsWhyItCannotMakeItsDirectory) {
  const auto path = parent_ + "/missing/cache";
  EXPECT_THAT([&] { DiskCache(path, kMuch); },
              ThrowsMessage<Error>("cache directory " + path +
                                   ": cannot create it: No such file or directory"));
}

TEST_F(DiskCacheTest, ReportsThatItsDirectoryIsAFile) {
  std::ofstream(directory_) << "x";
  EXPECT_THAT(
      [&] { DiskCache(directory_, kMuch); },
      ThrowsMessage<Error>("cache directory " + directory_ + ": cannot open it: Not a directory"));
}

TEST_F(DiskCacheTest, FollowsTheSymbolicLinkThatTheUserNames) {
  fs::create_directory(parent_ + "/elsewhere");
  fs::permissions(parent_ + "/elsewhere", fs::perms::owner_all);
  fs::create_directory_symlink(parent_ + "/elsewhere", directory_);
  const auto object = Open();
  object.WriteAll();
  EXPECT_THAT(object.ReadAll(), ElementsAre(0, 1, 2, 3));
}

// Creating files of other users needs root.
class DiskCacheOfOthersTest : public DiskCacheTest {
 protected:
  static constexpr uid_t kUs = 4711;
  static constexpr uid_t kOther = 4712;
  static constexpr gid_t kGroup = 4713;

  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    DiskCacheTest::SetUp();
    fs::permissions(parent_, fs::perms(0755));
  }

  // Makes the cache's directory.
  void Make(uid_t owner, mode_t mode) const {
    fs::create_directory(directory_);
    ASSERT_EQ(::chown(directory_.c_str(), owner, kGroup), 0);
    ASSERT_EQ(::chmod(directory_.c_str(), mode), 0);
  }

  // Calls `act` as a user of the group.
  template <typename Act>
  static void As(uid_t user, const Act& act) {
    const gid_t group = ::getegid();
    ASSERT_EQ(::setegid(kGroup), 0);
    ASSERT_EQ(::seteuid(user), 0);
    act();
    ASSERT_EQ(::seteuid(0), 0);
    ASSERT_EQ(::setegid(group), 0);
  }
};

TEST_F(DiskCacheOfOthersTest, RefusesADirectoryOfAnotherUser) {
  Make(kOther, 0770);
  As(kUs, [&] {
    EXPECT_THAT([&] { DiskCache(directory_, kMuch); },
                ThrowsMessage<Error>("cache directory " + directory_ +
                                     ": is owned by user 4712 (expected user 4711 or root)"));
  });
}

TEST_F(DiskCacheOfOthersTest, RefusesADirectoryOfAUserToRoot) {
  Make(kOther, 0700);
  EXPECT_THAT([&] { DiskCache(directory_, kMuch); },
              ThrowsMessage<Error>("cache directory " + directory_ +
                                   ": is owned by user 4712 (expected user 0 or root)"));
}

TEST_F(DiskCacheOfOthersTest, SharesADirectoryOfRootAmongAGroup) {
  Make(0, 02770);
  As(kOther, [&] { Open().Write(0, 2); });
  As(kUs, [&] {
    Open().Write(2, 2);
    EXPECT_THAT(Open().ReadAll(), ElementsAre(0, 1, 2, 3));
  });
}

TEST_F(DiskCacheOfOthersTest, ReadsWhatRootKeepsThereForOthers) {
  Make(0, 0755);
  Open().Write(1, 2);
  As(kUs, [&] {
    Open().Write(0, 1);
    EXPECT_THAT(Open().ReadAll(), ElementsAre(1, 2));
  });
}

TEST_F(DiskCacheOfOthersTest, DoesNotReadAFileOfAnotherUserInADirectoryThatIsNotShared) {
  Make(kUs, 0700);
  As(kUs, [&] { Open().WriteAll(); });
  ASSERT_EQ(::chown(Segment().c_str(), kOther, kGroup), 0);
  As(kUs, [&] {
    EXPECT_THAT(Open().ReadAll(), IsEmpty());
    Open().Write(0, 1);
    EXPECT_THAT(Open().ReadAll(), IsEmpty());
  });
}

TEST_F(DiskCacheTest, RemovesWhatWasNotUsedForTheLongestTime) {
  // Each object takes 4 blocks and its header and index.
  const DiskCache cache(directory_, 2000000);
  for (int i = 0; i < 12; ++i) {
    KnownObject(cache, std::to_string(i), 4 * kBlockSize).WriteAll();
    // Times of files are only as fine as the kernel's clock ticks.
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  KnownObject(cache, "0", 4 * kBlockSize).Read(0, 1);
  for (int i = 12; i < 20; ++i) {
    KnownObject(cache, std::to_string(i), 4 * kBlockSize).WriteAll();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_THAT(KnownObject(cache, "0", 4 * kBlockSize).ReadAll(), IsEmpty());
  EXPECT_THAT(KnownObject(cache, "19", 4 * kBlockSize).ReadAll(), SizeIs(4));
}

TEST_F(DiskCacheTest, KeepsWhatFitsOfALargerObjectThatIsReadAgain) {
  const uint64_t limit = uint64_t{24} << 20U;
  constexpr uint64_t kCount = 2000;  // Blocks: 62.5 MiB.
  constexpr uint64_t kRun = 20;
  std::vector<size_t> cached;
  for (int pass = 0; pass < 3; ++pass) {
    const DiskCache cache(directory_, limit);
    const KnownObject object(cache, kIdentity, kCount * kBlockSize);
    size_t found = 0;
    for (uint64_t i = 0; i < kCount; i += kRun) {
      const size_t here = object.Read(i, kRun).size();
      if (here < kRun) object.Write(i, kRun);
      found += here;
    }
    cached.push_back(found * kBlockSize);
    EXPECT_LE(Used(), limit);
  }
  EXPECT_EQ(cached[0], 0U);
  EXPECT_GE(cached[1], limit * 8 / 10);
  EXPECT_GE(cached[2], limit * 8 / 10);
}

TEST_F(DiskCacheTest, ReplacesAnObjectThatIsNotOpenAnyMore) {
  const uint64_t limit = uint64_t{24} << 20U;
  const DiskCache cache(directory_, limit);
  constexpr uint64_t kCount = 600;
  for (const char* const identity : {"first", "second"}) {
    const KnownObject object(cache, identity, kCount * kBlockSize);
    for (uint64_t i = 0; i < kCount; i += 20) object.Write(i, 20);
  }
  EXPECT_GE(KnownObject(cache, "second", kCount * kBlockSize).ReadAll().size(), kCount * 9 / 10);
}

TEST_F(DiskCacheTest, NeverTakesMoreThanItsLimit) {
  const uint64_t limit = 4000000;
  const DiskCache cache(directory_, limit);
  uint64_t most = 0;
  for (int i = 0; i < 60; ++i) {
    KnownObject(cache, std::to_string(i), 4 * kBlockSize).WriteAll();
    uint64_t used = 0;
    for (const auto& path : Segments()) {
      struct stat status = {};
      ASSERT_EQ(::stat(path.c_str(), &status), 0);
      used += static_cast<uint64_t>(status.st_blocks) * 512;
    }
    most = std::max(most, used);
  }
  EXPECT_LE(most, limit);
  EXPECT_GE(most, limit * 8 / 10);
}

TEST_F(DiskCacheTest, StoresNothingWhileAnotherProcessHoldsTheLock) {
  const uint64_t limit = 4000000;
  const DiskCache cache(directory_, limit);
  KnownObject(cache, "first", 4 * kBlockSize).WriteAll();
  const Fd lock(::open((directory_ + "/lock").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::flock(lock.number(), LOCK_EX | LOCK_NB), 0);
  for (int i = 0; i < 60; ++i) {
    KnownObject(cache, std::to_string(i), 4 * kBlockSize).WriteAll();
  }
  EXPECT_GT(Used(), 0U);
  EXPECT_LE(Used(), limit);
}

TEST_F(DiskCacheTest, StaysBelowItsLimitWhateverTheLockIs) {
  ASSERT_TRUE(fs::create_directories(directory_ + "/lock"));
  ASSERT_EQ(::chmod(directory_.c_str(), 0700), 0);
  const uint64_t limit = 4000000;
  const DiskCache cache(directory_, limit);
  for (int i = 0; i < 60; ++i) {
    KnownObject(cache, std::to_string(i), 4 * kBlockSize).WriteAll();
  }
  EXPECT_LE(Used(), limit);
  EXPECT_GE(Used(), limit * 8 / 10);
}

TEST_F(DiskCacheTest, RefusesADirectoryWhoseListOfRightsLetsOthersWrite) {
  for (const char* const list : {"system.posix_acl_access", "system.posix_acl_default"}) {
    ASSERT_TRUE(fs::create_directories(directory_));
    if (!SetList(directory_, list)) GTEST_SKIP() << "the file system has no access control lists";
    EXPECT_THAT([&] { DiskCache(directory_, kMuch); },
                ThrowsMessage<Error>("cache directory " + directory_ +
                                     ": its access control list lets other users write"));
    fs::remove_all(directory_);
  }
}

TEST_F(DiskCacheTest, DoesNotUseAFileWhoseListOfRightsLetsOthersWrite) {
  ASSERT_TRUE(fs::create_directories(directory_));
  ASSERT_EQ(::chmod(directory_.c_str(), 02770), 0);
  Open().WriteAll();
  ASSERT_THAT(Open().ReadAll(), SizeIs(4));
  if (!SetList(Segment(), "system.posix_acl_access")) {
    GTEST_SKIP() << "the file system has no access control lists";
  }
  EXPECT_THAT(Open().ReadAll(), IsEmpty());
}

TEST_F(DiskCacheTest, EvictsTheLeastRecentlyUsed) {
  const uint64_t size = 4 * kBlockSize;
  const DiskCache cache(directory_, 2000000);
  KnownObject(cache, "used", size).WriteAll();
  const auto used = Segment();
  for (int i = 0; i < 5; ++i) KnownObject(cache, std::to_string(i), size).WriteAll();
  for (const auto& path : Segments()) {
    const auto age = path == used ? std::chrono::hours(2) : std::chrono::hours(1);
    fs::last_write_time(path, fs::file_time_type::clock::now() - age);
  }
  EXPECT_THAT(KnownObject(cache, "used", size).Read(0, 1), SizeIs(1));
  for (int i = 5; i < 15; ++i) KnownObject(cache, std::to_string(i), size).WriteAll();
  EXPECT_THAT(Segments(), SizeIs(testing::Lt(16)));
  EXPECT_TRUE(fs::exists(used));
}

TEST_F(DiskCacheTest, RemovesNothingThatIsNotItsOwn) {
  const auto object = Open();
  object.WriteAll();
  const auto letter = Segment().parent_path() / "letter";
  std::ofstream(letter) << std::string(1000, 'x');
  std::ofstream(directory_ + "/letter") << std::string(1000, 'x');
  fs::last_write_time(letter, fs::file_time_type::clock::now() - std::chrono::hours(1));
  const DiskCache cache(directory_, 1);
  KnownObject(cache, "another", kBlockSize).WriteAll();
  EXPECT_THAT(object.ReadAll(), IsEmpty());
  EXPECT_TRUE(fs::exists(letter));
  EXPECT_TRUE(fs::exists(directory_ + "/letter"));
}

TEST_F(DiskCacheTest, CreatesANewFileAfterOneWasRemoved) {
  const auto object = Open();
  object.Write(0, 2);
  fs::remove(Segment());
  EXPECT_THAT(object.ReadAll(), IsEmpty());
  object.Write(2, 2);
  EXPECT_THAT(object.ReadAll(), ElementsAre(2, 3));
  EXPECT_THAT(Open().ReadAll(), ElementsAre(2, 3));
}

TEST_F(DiskCacheTest, KeepsNothingMoreForAWhileWhenAWriteHasFailed) {
  const auto object = Open();
  {
    const FilesUpTo limit(kBlocks + 3 * kBlockSize);
    object.Write(0, 2);
    object.Write(2, 2);
  }
  object.Write(2, 2);
  EXPECT_THAT(object.ReadAll(), ElementsAre(0, 1));
  Open().Write(2, 2);
  EXPECT_THAT(object.ReadAll(), ElementsAre(0, 1, 2, 3));
}

// Runs `act` in a process with a file system of `size` bytes mounted at `path`. Returns its exit
// status; nothing if there can be no such file system.
template <typename Act>
std::optional<int> WithSmallDisk(const std::string& path, const std::string& size, const Act& act) {
  constexpr int kCannot = 77;
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("", "/", "", MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("ckptfs", path.c_str(), "tmpfs", 0, ("mode=700,size=" + size).c_str()) != 0) {
      ::_exit(kCannot);
    }
    act();
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kCannot) return std::nullopt;
  return status;
}

TEST_F(DiskCacheTest, LeavesFivePercentOfTheDiskFree) {
  fs::create_directory(directory_);
  const auto status = WithSmallDisk(directory_, "10m", [&] {
    const DiskCache cache(directory_, kMuch);
    for (int i = 0; i < 100; ++i) {
      KnownObject(cache, std::to_string(i), 4 * kBlockSize).WriteAll();
    }
    EXPECT_GE(fs::space(directory_).available, 10 * 1048576 / 20);
    EXPECT_LE(fs::space(directory_).available, 10 * 1048576 / 4);
  });
  if (!status) GTEST_SKIP() << "cannot mount a small file system";
  EXPECT_EQ(*status, 0);
}

TEST_F(DiskCacheTest, KeepsWhatFitsOnASmallDisk) {
  fs::create_directory(directory_);
  const auto status = WithSmallDisk(directory_, "40m", [&] {
    const DiskCache cache(directory_, kMuch);
    constexpr uint64_t kCount = 2000;  // Blocks: 62.5 MiB.
    const KnownObject object(cache, kIdentity, kCount * kBlockSize);
    for (uint64_t i = 0; i < kCount; i += 20) object.Write(i, 20);
    EXPECT_GE(object.ReadAll().size() * kBlockSize, uint64_t{32} << 20U);
    EXPECT_GE(fs::space(directory_).available, 2 << 20U);
  });
  if (!status) GTEST_SKIP() << "cannot mount a small file system";
  EXPECT_EQ(*status, 0);
}

TEST_F(DiskCacheTest, EvictsOnADiskThatOthersHaveFilled) {
  fs::create_directory(directory_);
  const auto status = WithSmallDisk(directory_, "10m", [&] {
    for (int i = 0; i < 8; ++i) Open(std::to_string(i).c_str(), kMuch).Write(0, 20);
    std::ofstream(directory_ + "/other") << std::string(size_t{4} << 20U, 'x');
    Open().Write(0, 1);
    EXPECT_GE(fs::space(directory_).available, 10 * 1048576 / 20);
    Open().Write(0, 1);
    EXPECT_THAT(Open().Read(0, 1), SizeIs(1));
  });
  if (!status) GTEST_SKIP() << "cannot mount a small file system";
  EXPECT_EQ(*status, 0);
}

TEST_F(DiskCacheTest, ServesThreadsThatReadWhatOthersWrite) {
  constexpr uint64_t kCount = 200;
  const DiskCache cache(directory_, kMuch);
  const uint64_t size = kCount * kBlockSize - 7;
  {
    std::vector<std::jthread> threads(4);
    for (std::jthread& thread : threads) {
      thread = std::jthread([&] {
        const KnownObject object(cache, kIdentity, size);
        for (uint64_t i = 0; i + 5 <= kCount; ++i) {
          object.Write(i, 5);
          object.Read(kCount - i - 5, 5);
        }
      });
    }
  }
  EXPECT_THAT(KnownObject(cache, kIdentity, size).ReadAll(), SizeIs(kCount));
}

TEST_F(DiskCacheTest, LosesNothingWhenThreadsBeginASegmentAtTheSameTime) {
  constexpr uint64_t kThreads = 8;
  const DiskCache cache(directory_, kMuch);
  for (uint64_t segment = 0; segment < 15; ++segment) {
    const KnownObject object(cache, kIdentity, kMuch);
    const uint64_t first = segment * kSegmentBlocks;
    std::latch start(kThreads);
    {
      std::vector<std::jthread> threads;
      for (uint64_t t = 0; t < kThreads; ++t) {
        threads.emplace_back([&, t] {
          start.arrive_and_wait();
          object.Write(first + t, 1);
        });
      }
    }
    EXPECT_THAT(object.Read(first, kThreads), SizeIs(kThreads)) << "segment " << segment;
  }
}

TEST_F(DiskCacheTest, ServesThreadsWhileTheirFilesAreRemoved) {
  constexpr uint64_t kCount = 40;
  const DiskCache cache(directory_, 1000000);
  std::vector<std::jthread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        const KnownObject object(cache, std::to_string((t + i) % 8), kCount * kBlockSize);
        object.Write(0, kCount / 2);
        object.ReadAll();
      }
    });
  }
}

TEST_F(DiskCacheTest, ServesProcessesThatWriteTheSame) {
  constexpr uint64_t kCount = 100;
  const uint64_t size = kCount * kBlockSize;
  std::array<pid_t, 4> children = {};
  for (pid_t& child : children) {
    child = ::fork();
    if (child != 0) continue;
    const auto object = Open(kIdentity, size);
    for (uint64_t i = 0; i + 10 <= kCount; i += 5) {
      object.Write(i, 10);
      if (object.Read(i, 10).size() != 10) ::_exit(1);
    }
    ::_exit(HasFailure() ? 1 : 0);
  }
  std::vector<int> statuses;
  for (const pid_t child : children) {
    int status = -1;
    ::waitpid(child, &status, 0);
    statuses.push_back(status);
  }
  EXPECT_THAT(statuses, Each(0));
  EXPECT_THAT(Open(kIdentity, size).ReadAll(), SizeIs(kCount));
}

}  // namespace
}  // namespace ckptfs
