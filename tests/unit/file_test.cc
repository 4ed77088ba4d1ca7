#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "parser/base/error.h"
#include "parser/scheme.h"
#include "parser/source/file_path.h"
#include "tests/support/errors.h"
#include "tests/support/sources.h"

namespace ckptfs {

extern const Scheme file_scheme;

namespace {

// Opens a local file or folder without the context that OpenSource adds to errors.
Source OpenLocal(const std::string& uri, const SourceOptions& options) {
  return std::get<Source>(file_scheme.open(ParseLocation(uri), options));
}

std::string PathIn(std::string_view uri) { return file::PathOf(ParseLocation(uri)); }

auto IsStale() { return Fails(ESTALE, "file changed since it was opened"); }

// Root may read all files: as long as this lives, the process is another user.
class NotRoot {
 public:
  NotRoot() : was_root_(::geteuid() == 0) {
    constexpr uid_t kNobody = 65534;
    if (was_root_) {
      EXPECT_EQ(::seteuid(kNobody), 0);
    }
  }
  NotRoot(const NotRoot&) = delete;
  NotRoot& operator=(const NotRoot&) = delete;
  ~NotRoot() {
    if (was_root_) {
      EXPECT_EQ(::seteuid(0), 0);
    }
  }

 private:
  const bool was_root_;
};

class FileTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static void Write(const std::filesystem::path& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }

  ByteSourcePtr Open() const { return OpenLocal(path_, {}).file; }
  FolderPtr OpenFolder() const { return OpenLocal(folder_, {}).folder; }

  const std::filesystem::path folder_ =
      testing::TempDir() + testing::UnitTest::GetInstance()->current_test_info()->name() +
      std::to_string(::getpid());
  const std::filesystem::path path_ = folder_ / "file";
};

TEST_F(FileTest, ReadsAnyRange) {
  Write(path_, "0123456789");
  const auto file = Open();
  EXPECT_EQ(file->name(), path_);
  EXPECT_EQ(file->size(), 10U);
  EXPECT_EQ(ReadString(*file, 0, 10), "0123456789");
  EXPECT_EQ(ReadString(*file, 3, 4), "3456");
  EXPECT_EQ(ReadString(*file, 10, 0), "");
}

TEST_F(FileTest, OpensFileUris) {
  Write(path_, "0123456789");
  EXPECT_EQ(ReadString(*OpenLocal("file://" + path_.string(), {}).file, 3, 4), "3456");
}

TEST_F(FileTest, ReadsPieces) {
  Write(path_, "0123456789");
  std::string text(6, '\0');
  Open()->ReadPiecesAt(1, 3, 2, std::as_writable_bytes(std::span(text)));
  EXPECT_EQ(text, "124578");
}

TEST_F(FileTest, HasTheModificationTimeOfTheFile) {
  Write(path_, "0");
  const timespec times[] = {{.tv_sec = 1, .tv_nsec = 2}, {.tv_sec = 12345, .tv_nsec = 67890}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path_.c_str(), times, 0), 0);
  const timespec modified = Open()->modified();
  EXPECT_EQ(modified.tv_sec, 12345);
  EXPECT_EQ(modified.tv_nsec, 67890);
}

TEST_F(FileTest, OpensAnEmptyFile) {
  Write(path_, "");
  EXPECT_EQ(Open()->size(), 0U);
}

TEST_F(FileTest, IsStaleOnceItIsTruncated) {
  Write(path_, "0123456789");
  const auto file = Open();
  std::filesystem::resize_file(path_, 5);
  EXPECT_THAT([&] { ReadString(*file, 0, 10); }, IsStale());
  EXPECT_THAT([&] { ReadString(*file, 0, 1); }, IsStale());
}

TEST_F(FileTest, IsStaleOnceItIsAppendedTo) {
  Write(path_, "0123456789");
  const auto file = Open();
  std::filesystem::resize_file(path_, 11);
  EXPECT_THAT([&] { ReadString(*file, 0, 1); }, IsStale());
}

TEST_F(FileTest, IsStaleOnceItIsWrittenInPlace) {
  Write(path_, "0123456789");
  const auto before = std::filesystem::last_write_time(path_);
  const auto file = Open();
  Write(path_, "9876543210");
  std::filesystem::last_write_time(path_, before + std::chrono::nanoseconds(1000));
  EXPECT_THAT([&] { ReadString(*file, 0, 1); }, IsStale());
}

// Restores the times of a file to those in `before`.
void Restore(const std::filesystem::path& path, const struct stat& before) {
  const timespec times[] = {before.st_atim, before.st_mtim};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
}

TEST_F(FileTest, IsStaleOnceItIsWrittenInPlaceAndItsTimeSetBack) {
  Write(path_, "0123456789");
  struct stat before = {};
  ASSERT_EQ(::stat(path_.c_str(), &before), 0);
  const auto file = Open();
  EXPECT_EQ(ReadString(*file, 0, 1), "0");
  Write(path_, "9876543210");
  Restore(path_, before);
  EXPECT_THAT([&] { ReadString(*file, 0, 1); }, IsStale());
}

TEST_F(FileTest, IsStaleAfterAnyChangeOfTheInode) {
  const std::filesystem::path other = folder_ / "other";
  const std::pair<const char*, std::function<int()>> covers[] = {
      {"chmod", [&] { return ::chmod(path_.c_str(), 0640); }},
      {"link", [&] { return ::link(path_.c_str(), other.c_str()); }},
      {"rename", [&] { return ::rename(path_.c_str(), other.c_str()); }},
  };
  for (const auto& [name, cover] : covers) {
    SCOPED_TRACE(name);
    std::filesystem::remove(other);
    Write(path_, "0123456789");
    struct stat before = {};
    ASSERT_EQ(::stat(path_.c_str(), &before), 0);
    const auto file = Open();
    Write(path_, "9876543210");
    Restore(path_, before);
    ASSERT_EQ(cover(), 0);
    EXPECT_THAT([&] { ReadString(*file, 0, 1); }, IsStale());
    std::filesystem::remove(path_);
  }
}

TEST_F(FileTest, IsStaleForReadsOfPiecesToo) {
  Write(path_, "0123456789");
  const auto file = Open();
  std::filesystem::resize_file(path_, 11);
  std::string text(6, '\0');
  EXPECT_THAT([&] { file->ReadPiecesAt(1, 3, 2, std::as_writable_bytes(std::span(text))); },
              IsStale());
}

TEST_F(FileTest, ReadsTheOldVersionIfReplaced) {
  Write(path_, "old");
  const auto file = Open();
  Write(folder_ / "new", "newer");
  std::filesystem::rename(folder_ / "new", path_);
  EXPECT_EQ(ReadString(*file, 0, 3), "old");
}

TEST_F(FileTest, ReadsTheOldVersionIfRemoved) {
  Write(path_, "old");
  const auto file = Open();
  std::filesystem::remove(path_);
  EXPECT_EQ(ReadString(*file, 0, 3), "old");
  EXPECT_EQ(ReadString(*file, 0, 3), "old");
}

TEST_F(FileTest, IsStaleIfItIsWrittenAfterItWasRemoved) {
  Write(path_, "old");
  struct stat before = {};
  ASSERT_EQ(::stat(path_.c_str(), &before), 0);
  const auto file = Open();
  std::ofstream writer(path_, std::ios::binary | std::ios::in);
  std::filesystem::remove(path_);
  EXPECT_EQ(ReadString(*file, 0, 3), "old");
  writer << "new" << std::flush;
  EXPECT_THAT([&] { ReadString(*file, 0, 3); }, IsStale());
}

TEST_F(FileTest, ReportsAMissingFile) {
  EXPECT_THAT([&] { Open(); }, Fails(ENOENT, "cannot open: No such file or directory"));
}

TEST_F(FileTest, ReportsMissingPermission) {
  Write(path_, "0");
  ASSERT_EQ(::chmod(path_.c_str(), 0), 0);
  ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);
  const NotRoot not_root;
  EXPECT_THAT([&] { Open(); }, Fails(EACCES, "cannot open: Permission denied"));
}

TEST_F(FileTest, RejectsAPipeWithoutWaitingForAWriter) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT([&] { Open(); }, Fails(EINVAL, "not a regular file"));
}

TEST_F(FileTest, RejectsADevice) {
  EXPECT_THAT([&] { OpenLocal("/dev/null", {}); }, Fails(EINVAL, "not a regular file"));
}

TEST_F(FileTest, HasAFolderAndAName) {
  Write(path_, "0");
  Write(folder_ / "sibling", "beside it");
  const Source source = OpenLocal(path_, {});
  EXPECT_EQ(source.file_name, "file");
  EXPECT_EQ(source.folder->name(), folder_);
  EXPECT_EQ(ReadString(*source.folder->Open("sibling"), 0, 9), "beside it");
}

TEST_F(FileTest, InTheWorkingDirectoryHasThatForAFolder) {
  Write(path_, "0");
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder_);
  const Source source = OpenLocal("file", {});
  std::filesystem::current_path(before);
  EXPECT_EQ(source.folder->name(), ".");
  EXPECT_EQ(source.folder->Open("file")->size(), 1U);
}

TEST_F(FileTest, BehindALinkHasTheFolderOfTheLink) {
  std::filesystem::create_directory(folder_ / "blobs");
  Write(folder_ / "blobs" / "0123", "index");
  std::filesystem::create_symlink("blobs/0123", path_);
  Write(folder_ / "sibling", "shard");
  EXPECT_EQ(ReadString(*OpenLocal(path_, {}).folder->Open("sibling"), 0, 5), "shard");
}

TEST_F(FileTest, MayBeADirectory) {
  const Source source = OpenLocal(folder_, {});
  EXPECT_EQ(source.file, nullptr);
  EXPECT_EQ(source.name(), folder_);
}

using FolderTest = FileTest;

TEST_F(FolderTest, ListsRegularFilesAndLinksToThemInTheOrderOfTheirBytes) {
  Write(folder_ / "b", "");
  Write(folder_ / "B", "");
  Write(folder_ / ".hidden", "");
  std::filesystem::create_directory(folder_ / "directory");
  std::filesystem::create_symlink("b", folder_ / "link");
  std::filesystem::create_symlink("directory", folder_ / "link to a directory");
  std::filesystem::create_symlink("nothing", folder_ / "link to nothing");
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(OpenFolder()->List(), (std::vector<std::string>{".hidden", "B", "b", "link"}));
}

TEST_F(FolderTest, ListsDirectoriesButNotLinksToThem) {
  Write(path_, "");
  std::filesystem::create_directory(folder_ / "b");
  std::filesystem::create_directory(folder_ / "B");
  std::filesystem::create_symlink("b", folder_ / "link");
  EXPECT_EQ(OpenFolder()->ListFolders(), (std::vector<std::string>{"B", "b"}));
}

TEST_F(FolderTest, OpensDirectoriesInIt) {
  std::filesystem::create_directories(folder_ / "a" / "b");
  Write(folder_ / "a" / "b" / "file", "inside");
  const FolderPtr inner = OpenFolder()->OpenFolder("a")->OpenFolder("b");
  EXPECT_EQ(ReadString(*inner->Open("file"), 0, 6), "inside");
  EXPECT_EQ(inner->Open("file")->name(), folder_ / "a" / "b" / "file");
}

TEST_F(FolderTest, HasNoDirectoryWhereThereIsAFileOrALinkOrNothing) {
  Write(path_, "");
  std::filesystem::create_directory(folder_ / "inner");
  std::filesystem::create_symlink("inner", folder_ / "link");
  std::filesystem::create_symlink("..", folder_ / "parent");
  EXPECT_EQ(OpenFolder()->OpenFolder("file"), nullptr);
  EXPECT_EQ(OpenFolder()->OpenFolder("link"), nullptr);
  EXPECT_EQ(OpenFolder()->OpenFolder("parent"), nullptr);
  EXPECT_EQ(OpenFolder()->OpenFolder("nothing"), nullptr);
  EXPECT_EQ(OpenFolder()->OpenFolder(std::string(300, 'n')), nullptr);
}

TEST_F(FolderTest, FindsFilesAndDirectories) {
  Write(path_, "text");
  std::filesystem::create_directory(folder_ / "inner");
  std::filesystem::create_symlink("file", folder_ / "link");
  std::filesystem::create_symlink("inner", folder_ / "leads to a directory");
  std::filesystem::create_symlink("loop", folder_ / "loop");
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  const FolderPtr folder = OpenFolder();
  EXPECT_FALSE(folder->Find("file")->is_folder);
  EXPECT_EQ(folder->Find("file")->size, 4U);
  EXPECT_EQ(folder->Find("link")->version, folder->Find("file")->version);
  EXPECT_TRUE(folder->Find("inner")->is_folder);
  for (const char* name : {"leads to a directory", "loop", "pipe", "nothing"}) {
    EXPECT_FALSE(folder->Find(name)) << name;
  }
  EXPECT_FALSE(folder->Find(std::string(300, 'n')));
}

TEST_F(FolderTest, FindsTheVersionOfAFile) {
  Write(path_, "text");
  const FolderPtr folder = OpenFolder();
  const std::string before = folder->Find("file")->version;
  EXPECT_EQ(folder->Find("file")->version, before);
  Write(folder_ / "new", "text");
  std::filesystem::rename(folder_ / "new", path_);
  EXPECT_NE(folder->Find("file")->version, before);
}

// Sources of so many files, whose contents are their numbers; more than stay open.
constexpr int kMany = 1100;

TEST_F(FolderTest, OpensMoreFilesThanAreKeptOpen) {
  std::filesystem::create_directory(folder_ / "inner");
  for (int i = 0; i < kMany; ++i) Write(folder_ / "inner" / std::to_string(i), std::to_string(i));
  const FolderPtr inner = OpenFolder()->OpenFolder("inner");
  std::vector<ByteSourcePtr> sources;
  sources.reserve(kMany);
  for (int i = 0; i < kMany; ++i) sources.push_back(inner->Open(std::to_string(i)));
  EXPECT_EQ(ReadString(*sources.front(), 0, 1), "0");
  EXPECT_EQ(ReadString(*sources.back(), 0, 4), "1099");
  sources.erase(sources.begin(), sources.begin() + kMany / 2);
  EXPECT_EQ(ReadString(*inner->Open("7"), 0, 1), "7");
  std::string pieces(2, '?');
  sources.back()->ReadPiecesAt(0, 2, 1, std::as_writable_bytes(std::span(pieces)));
  EXPECT_EQ(pieces, "19");
}

TEST_F(FolderTest, DetectsChangesOfAFileThatIsNotKeptOpen) {
  std::vector<ByteSourcePtr> sources;
  const FolderPtr folder = OpenFolder();
  for (int i = 0; i < kMany; ++i) {
    Write(folder_ / std::to_string(i), "old");
    sources.push_back(folder->Open(std::to_string(i)));
  }
  Write(folder_ / "new", "new");
  std::filesystem::rename(folder_ / "new", folder_ / "1099");
  std::filesystem::remove(folder_ / "1098");
  Write(folder_ / "1097", "longer");
  const auto refused = Fails(ESTALE, "file changed since it was opened");
  EXPECT_THAT([&] { ReadString(*sources[1099], 0, 3); }, refused);
  EXPECT_THAT([&] { ReadString(*sources[1098], 0, 3); }, refused);
  EXPECT_THAT([&] { ReadString(*sources[1097], 0, 3); }, refused);
  EXPECT_EQ(ReadString(*sources[1096], 0, 3), "old");
}

TEST_F(FolderTest, OpensNoDirectoryOutside) {
  const auto refused = Fails(EBADMSG, "invalid file name");
  EXPECT_THAT([&] { OpenFolder()->OpenFolder(".."); }, refused);
  EXPECT_THAT([&] { OpenFolder()->OpenFolder("/"); }, refused);
  EXPECT_THAT([&] { OpenFolder()->OpenFolder(""); }, refused);
}

TEST_F(FolderTest, OfNoFilesHasAnEmptyList) { EXPECT_TRUE(OpenFolder()->List().empty()); }

TEST_F(FolderTest, MayBeListedTwice) {
  Write(path_, "");
  const FolderPtr folder = OpenFolder();
  EXPECT_EQ(folder->List().size(), 1U);
  EXPECT_EQ(folder->List().size(), 1U);
}

TEST_F(FolderTest, FollowsLinks) {
  std::filesystem::create_directory(folder_ / "snapshot");
  Write(path_, "blob");
  std::filesystem::create_symlink("../file", folder_ / "snapshot" / "model");
  const FolderPtr snapshot = OpenLocal(folder_ / "snapshot", {}).folder;
  EXPECT_EQ(ReadString(*snapshot->Open("model"), 0, 4), "blob");
}

TEST_F(FolderTest, IsTheSameAfterItWasMoved) {
  std::filesystem::create_directory(folder_ / "old");
  Write(folder_ / "old" / "file", "here");
  const FolderPtr folder = OpenLocal(folder_ / "old", {}).folder;
  std::filesystem::rename(folder_ / "old", folder_ / "new");
  std::filesystem::create_directory(folder_ / "old");
  EXPECT_EQ(ReadString(*folder->Open("file"), 0, 4), "here");
}

TEST_F(FolderTest, ReportsAMissingFile) {
  EXPECT_THAT([&] { OpenFolder()->Open("nothing"); },
              Fails(ENOENT, "cannot open: No such file or directory"));
}

TEST_F(FolderTest, OpensNoFileOfAnotherFolder) {
  Write(path_, "");
  std::filesystem::create_directory(folder_ / "inner");
  const FolderPtr inner = OpenLocal(folder_ / "inner", {}).folder;
  const auto refused = Fails(EBADMSG, "invalid file name");
  EXPECT_THAT([&] { inner->Open("../file"); }, refused);
  EXPECT_THAT([&] { inner->Open(path_); }, refused);
  EXPECT_THAT([&] { OpenFolder()->Open("inner/../file"); }, refused);
  EXPECT_THAT([&] { inner->Open(".."); }, refused);
  EXPECT_THAT([&] { inner->Open(std::string("file\0x", 6)); }, refused);
  EXPECT_THAT([&] { inner->Open(""); }, refused);
}

TEST_F(FolderTest, OpensNoDirectoryAndNoPipe) {
  std::filesystem::create_directory(folder_ / "inner");
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT([&] { OpenFolder()->Open("inner"); }, Fails(EISDIR, "is a directory"));
  EXPECT_THAT([&] { OpenFolder()->Open("file"); }, Fails(EINVAL, "not a regular file"));
}

TEST_F(FolderTest, HasTheModificationTimeOfTheDirectory) {
  const timespec times[] = {{.tv_sec = 1, .tv_nsec = 2}, {.tv_sec = 12345, .tv_nsec = 67890}};
  ASSERT_EQ(::utimensat(AT_FDCWD, folder_.c_str(), times, 0), 0);
  EXPECT_EQ(OpenLocal(folder_, {}).modified().tv_sec, 12345);
}

TEST(FileUri, IsPercentEncoded) {
  EXPECT_EQ(PathIn("file:///my%20dir/%c3%a4.pth"), "/my dir/\xc3\xa4.pth");
}

TEST(FileUri, IsOfThisMachine) {
  EXPECT_EQ(PathIn("file://localhost/a"), "/a");
  EXPECT_EQ(PathIn("file://LOCALHOST/a"), "/a");
  EXPECT_THAT([] { PathIn("file://host/a"); },
              Fails(EINVAL,
                    "unsupported host in a file URI (expected none or localhost, as in "
                    "file:///dir/model.pth)"));
}

TEST(FileUri, IsAbsolute) {
  for (const char* const uri : {"file://", "file://a.pth", "file://./a.pth", "file://../a.pth"}) {
    EXPECT_THAT(
        [uri] { PathIn(uri); },
        Fails(
            EINVAL,
            "relative path in a file URI (expected an absolute one, as in file:///dir/model.pth)"));
  }
}

TEST(FileUri, RejectsNul) {
  EXPECT_THAT([] { PathIn("file:///a%00b"); }, Fails(EINVAL, "the path contains a NUL"));
}

TEST(FileUri, IsNoPathThatLooksLikeOne) {
  EXPECT_EQ(PathIn("/a%20b"), "/a%20b");
  EXPECT_EQ(PathIn("file:a"), "file:a");
}

}  // namespace
}  // namespace ckptfs
